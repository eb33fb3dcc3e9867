"""Where names go beside discs: the first place of a few that hides nothing, else the one that hides least."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

AIR = 5.0


class LabelBox(NamedTuple):
    """A rectangle in pixels, y upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: LabelBox) -> float:
        """The common area.

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
    """A disc in pixels, and the size of its name."""

    x: float
    y: float
    radius: float
    width: float
    height: float

    @property
    def box(self) -> LabelBox:
        return LabelBox(self.x - self.radius, self.y - self.radius, self.x + self.radius, self.y + self.radius)

    def places(self) -> list[LabelBox]:
        """To the right and slightly below, since the line between the best runs leaves upwards; then elsewhere."""
        out, w, h = self.radius + AIR, self.width, self.height
        corners = [(out, -0.7 * h), (out, -0.2 * h), (out, -1.2 * h), (out, 0.3 * h), (-out - w, -0.7 * h)]
        corners += [(-w / 2, -out - h), (-w / 2, out), (-out - w, 0.3 * h), (-out - w, -1.2 * h)]
        return [LabelBox(self.x + x, self.y + y, self.x + x + w, self.y + y + h) for x, y in corners]


def placed(discs: Sequence[Disc], sheet: LabelBox) -> list[LabelBox]:
    """A box for each name, in order: off the sheet, on a disc or on another name counts against a place."""
    taken: list[LabelBox] = []
    for disc in discs:
        others = [*taken, *(each.box for each in discs)]
        taken.append(min(disc.places(), key=lambda box: _hidden(box, others, sheet)))
    return taken


def _hidden(box: LabelBox, others: Sequence[LabelBox], sheet: LabelBox) -> float:
    return 3 * (box.area - box.overlap(sheet)) + sum(box.overlap(other) for other in others)
