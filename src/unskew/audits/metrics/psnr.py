"""MSE and PSNR of images. Both mean nothing without their space, so it is an argument and part of the result.

unit: pixels in [0, 1]. normalised: model inputs, (pixel - mean) / std by channel. With one std for all channels MSE in
unit space is std^2 times that in normalised space. PSNR = 10 log10(range^2 / MSE) of each image; a mean of PSNRs is not
the PSNR of a mean. GGL and FedBAR use range 1 for images whose range is 2 (-6.02 dB).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from unskew.audits.metrics.metric_values import MetricValues, check_pair

Space = Literal["unit", "normalised"]
FLOOR = 1e-12  # lower bound of the MSE in PSNR: an exact copy has 120 dB at range 1 instead of infinity


def to_unit(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Pixels from model inputs [n, C, ...]: undoes the normalisation without clamping."""
    if mean is None or std is None:
        return x
    by_channel = (-1, *(1 for _ in x.shape[2:]))
    return x * x.new_tensor(list(std)).view(by_channel) + x.new_tensor(list(mean)).view(by_channel)


def as_picture(x: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    """Pixels to show: as `to_unit`, clamped to [0, 1], with NaN as grey."""
    return to_unit(x, mean, std).nan_to_num(0.5, 1.0, 0.0).clamp(0, 1)


def mse(true: Tensor, recovered: Tensor, space: Space) -> MetricValues:
    """Mean squared error of each image, over channels and pixels."""
    check_pair(true, recovered)
    return MetricValues("mse", space, (true - recovered).double().pow(2).flatten(1).mean(1))


def psnr(true: Tensor, recovered: Tensor, space: Space, data_range: float) -> MetricValues:
    """PSNR of each image in dB."""
    error = mse(true, recovered, space).values.clamp_min(FLOOR)
    return MetricValues("psnr", f"{space}, range {data_range:g}", 10 * torch.log10(data_range**2 / error))
