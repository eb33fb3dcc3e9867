"""A metric's values with the space they were taken in, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unskew.base.errors import UserError


@dataclass(frozen=True, eq=False)
class MetricValues:
    """One value per image. space: what must be said beside the number for it to mean anything."""

    metric: str
    space: str
    values: Tensor  # [n]

    @property
    def mean(self) -> float:
        """Mean of the values of the images, never the value of a mean."""
        return float(self.values.double().mean())


@dataclass(frozen=True)
class SkippedMetric:
    """A metric that was not computed, and why; nothing else is put in its place."""

    metric: str
    reason: str


def check_pair(true: Tensor, recovered: Tensor) -> None:
    """Refuse pictures that do not belong together."""
    if true.shape != recovered.shape or true.ndim < 2 or not len(true):
        raise UserError(
            f"metrics: expected as many recovered images as true ones, all of one shape [n, C, H, W], found "
            f"{list(recovered.shape)} against {list(true.shape)}"
        )
