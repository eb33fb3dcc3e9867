"""MSE and PSNR of images. Both mean nothing without their space, so that it is an argument and part of the result.

unit: pixels from 0 to 1. normalised: as the model sees them, (pixel - mean) / std by channel. With one std for all
channels MSE in the unit space is std^2 times that in the normalised one. PSNR = 10 log10(range^2 / MSE) of each image,
and a mean of PSNRs is not the PSNR of a mean: GGL and FedBAR put range 1 to images whose range is 2 (-6.02 dB).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from unskew.audit.metrics.metric_values import MetricValues, check_pair

Space = Literal["unit", "normalised"]
FLOOR = 1e-12  # of an MSE before its logarithm: an exact copy has 120 dB at range 1, not infinity


def to_unit(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Pixels from model inputs [n, C, ...]: the normalisation undone, nothing cut off."""
    if mean is None or std is None:
        return x
    along = (-1, *(1 for _ in x.shape[2:]))
    return x * x.new_tensor(list(std)).view(along) + x.new_tensor(list(mean)).view(along)


def as_picture(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Pixels that can be shown: as `to_unit`, cut off at 0 and 1; what an attack left undefined is grey."""
    return to_unit(x, mean, std).nan_to_num(0.5, 1.0, 0.0).clamp(0, 1)


def mse(true: Tensor, recovered: Tensor, space: Space) -> MetricValues:
    """Mean over channels and pixels of each image."""
    check_pair(true, recovered)
    return MetricValues("mse", space, (true - recovered).double().pow(2).flatten(1).mean(1))


def psnr(true: Tensor, recovered: Tensor, space: Space, data_range: float) -> MetricValues:
    """In dB, of each image."""
    error = mse(true, recovered, space).values.clamp_min(FLOOR)
    return MetricValues("psnr", f"{space}, range {data_range:g}", 10 * torch.log10(data_range**2 / error))
