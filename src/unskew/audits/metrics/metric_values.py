"""Result of a metric: one value per image and what it was measured on (`space`), or why the metric was skipped.

Also the shape check that the image metrics share.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from unskew.base.errors import UserError


@dataclass(frozen=True, eq=False)
class MetricValues:
    """One value per image. space: what it was measured on (pixel range, normalisation, backbone)."""

    metric: str
    space: str
    values: Tensor  # [n]

    @property
    def mean(self) -> float:
        """Mean of the values over the images."""
        return float(self.values.double().mean())


@dataclass(frozen=True)
class SkippedMetric:
    """A metric that was not computed, and why; no other metric replaces it."""

    metric: str
    reason: str


def check_pair(true: Tensor, recovered: Tensor) -> None:
    """Raise a UserError if true and recovered images differ in shape or number."""
    if true.shape != recovered.shape or true.ndim < 2 or not len(true):
        raise UserError(
            f"metrics: expected as many recovered images as true ones, all of one shape [n, C, H, W], found "
            f"{list(recovered.shape)} against {list(true.shape)}"
        )
