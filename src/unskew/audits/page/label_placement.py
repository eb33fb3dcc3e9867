"""Places labels next to discs: at the first of a few positions without overlap, else at the one with the least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAP = 5.0  # pixels between a disc and its label


class LabelBox(NamedTuple):
    """A rectangle in pixels, y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: LabelBox) -> float:
        """Area of the intersection.

        >>> LabelBox(0, 0, 4, 4).overlap(LabelBox(3, 2, 9, 9))
        2.0
        """
        wide = min(self.right, other.right) - max(self.left, other.left)
        tall = min(self.top, other.top) - max(self.bottom, other.bottom)
        return float(max(wide, 0.0) * max(tall, 0.0))

    @property
    def area(self) -> float:
        return (self.right - self.left) * (self.top - self.bottom)


class Disc(NamedTuple):
    """A disc in pixels, with width and height of its label."""

    x: float
    y: float
    radius: float
    width: float
    height: float

    @property
    def box(self) -> LabelBox:
        return LabelBox(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)

    def candidates(self) -> list[LabelBox]:
        """Positions of the label, best first: right and slightly below, since the Pareto front leaves upwards."""
        out, w, h = self.radius + GAP, self.width, self.height
        corners = [(out, -0.7 * h), (out, -0.2 * h), (out, -1.2 * h), (out, 0.3 * h), (-out - w, -0.7 * h)]
        corners += [(-w / 2, -out - h), (-w / 2, out), (-out - w, 0.3 * h), (-out - w, -1.2 * h)]
        return [LabelBox(self.x + x, self.y + y, self.x + x + w, self.y + y + h) for x, y in corners]


def place_labels(discs: Sequence[Disc], sheet: LabelBox) -> list[LabelBox]:
    """A box for each label, in order, with the least overlap with discs, earlier labels and the edge of the sheet."""
    placed: list[LabelBox] = []
    for disc in discs:
        others = [*placed, *(each.box for each in discs)]
        placed.append(min(disc.candidates(), key=lambda box: _overlap_cost(box, others, sheet)))
    return placed


def _overlap_cost(box: LabelBox, others: Sequence[LabelBox], sheet: LabelBox) -> float:
    return 3 * (box.area - box.overlap(sheet)) + sum(box.overlap(other) for other in others)
