"""How near what was recovered is to the truth, as values with their space."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unskew.audit.attack_cases import AttackCase
from unskew.audit.metrics.lpips import lpips
from unskew.audit.metrics.metric_values import MetricValues, SkippedMetric
from unskew.audit.metrics.psnr import mse, psnr
from unskew.audit.metrics.representation import representation_mse
from unskew.audit.metrics.ssim import ssim
from unskew.audit.replayed_run import ReplayedRun

FAR = 1e30  # what is not finite is farther than anything


def paired(true: Tensor, recovered: Tensor) -> Tensor:
    """[n] which recovered row stands for which true one, so that the errors together are smallest.

    The order of the rows in a message means nothing.
    """
    errors = torch.cdist(true.double().flatten(1), recovered.double().flatten(1)).square()
    _, columns = linear_sum_assignment(errors.nan_to_num(FAR, FAR).clamp_max(FAR).cpu().numpy())
    return torch.as_tensor(columns, device=true.device)


def measure(
    case: AttackCase, true: Tensor, recovered: Tensor, world: ReplayedRun
) -> list[MetricValues | SkippedMetric]:
    """As `likeness`, and by the last representation of the model that was attacked."""
    first, *rest = likeness(true, recovered, world)
    return [first, representation_mse(case.replay.model, case.replay.received.model, true, recovered), *rest]


def likeness(true: Tensor, recovered: Tensor, world: ReplayedRun) -> list[MetricValues | SkippedMetric]:
    """Of rows [n, ...] as the model sees them, and of their pixels, cut off at 0 and 1, where they are pixels."""
    found: list[MetricValues | SkippedMetric] = [mse(true, recovered, "normalised")]
    pixels, made = world.unit(true), world.unit(recovered)
    if pixels is not None and made is not None:
        found += [mse(pixels, made, "unit"), psnr(pixels, made, "unit", 1.0)]
        if pixels.ndim == 4:
            found += [ssim(pixels, made), lpips(pixels, made, world.data_dir)]
    return found
