"""SSIM: structural similarity, by torchmetrics (Gaussian window of 11 pixels, sigma 1.5, borders reflected).

1 is an exact copy. Borders count, as in torchmetrics; implementations that leave them out give different values.
"""

from __future__ import annotations

import importlib.util

from torch import Tensor

from unskew.audits.metrics.metric_values import MetricValues, SkippedMetric, check_pair

MIN_SIDE = 6  # pixels: half a window is reflected at the border and must fit into the image


def ssim(true: Tensor, recovered: Tensor, data_range: float = 1.0) -> MetricValues | SkippedMetric:
    """SSIM of each image [C, H, W]."""
    check_pair(true, recovered)
    if importlib.util.find_spec("torchmetrics") is None:
        return SkippedMetric("ssim", "torchmetrics is not installed: pip install 'unskew[privacy]'")
    if true.ndim != 4 or min(true.shape[2:]) < MIN_SIDE:
        return SkippedMetric(
            "ssim", f"SSIM needs images of at least {MIN_SIDE} × {MIN_SIDE} pixels, these are {_size(true)}"
        )
    from torchmetrics.functional.image import structural_similarity_index_measure

    values = structural_similarity_index_measure(
        recovered.float(), true.float(), data_range=data_range, reduction="none"
    )
    if not isinstance(values, Tensor):
        raise TypeError(f"torchmetrics: expected one value per image, found {type(values).__name__}")
    return MetricValues("ssim", f"range {data_range:g}", values.reshape(-1).double())


def _size(x: Tensor) -> str:
    return " × ".join(map(str, x.shape[1:]))
