"""SSIM: structural similarity, by torchmetrics (Gaussian window of 11 pixels, sigma 1.5, borders reflected).

1 is an exact copy. Borders count, as torchmetrics has it; an implementation that leaves them out has other numbers.
"""

from __future__ import annotations

import importlib.util

from torch import Tensor

from unskew.audit.metrics.metric_values import MetricValues, SkippedMetric, check_pair

LEAST = 6  # pixels: a window's half is reflected at the border and must lie inside


def ssim(true: Tensor, recovered: Tensor, data_range: float = 1.0) -> MetricValues | SkippedMetric:
    """Of each image [C, H, W]."""
    check_pair(true, recovered)
    if importlib.util.find_spec("torchmetrics") is None:
        return SkippedMetric("ssim", "torchmetrics is not installed: pip install 'unskew[privacy]'")
    if true.ndim != 4 or min(true.shape[2:]) < LEAST:
        return SkippedMetric("ssim", f"it needs images of at least {LEAST} × {LEAST} pixels, these are {_size(true)}")
    from torchmetrics.functional.image import structural_similarity_index_measure as of

    values = of(recovered.float(), true.float(), data_range=data_range, reduction="none")
    if not isinstance(values, Tensor):
        raise TypeError(f"torchmetrics: expected one value per image, found {type(values).__name__}")
    return MetricValues("ssim", f"range {data_range:g}", values.reshape(-1).double())


def _size(x: Tensor) -> str:
    return " × ".join(map(str, x.shape[1:]))
