"""How near what was recovered is to the truth, as values with their space."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unskew.audit.cases import Case
from unskew.audit.metrics.measured import Measured, Skipped
from unskew.audit.metrics.perceptual import lpips
from unskew.audit.metrics.pixels import mse, psnr
from unskew.audit.metrics.representation import representation_mse
from unskew.audit.metrics.structure import ssim
from unskew.audit.world import World

FAR = 1e30  # what is not finite is farther than anything


def paired(true: Tensor, recovered: Tensor) -> Tensor:
    """[n] which recovered row stands for which true one, so that the errors together are smallest.

    The order of the rows in a message means nothing.
    """
    errors = torch.cdist(true.double().flatten(1), recovered.double().flatten(1)).square()
    _, columns = linear_sum_assignment(errors.nan_to_num(FAR, FAR).clamp_max(FAR).cpu().numpy())
    return torch.as_tensor(columns, device=true.device)


def measure(case: Case, true: Tensor, recovered: Tensor, world: World) -> list[Measured | Skipped]:
    """As `likeness`, and by the last representation of the model that was attacked."""
    first, *rest = likeness(true, recovered, world)
    return [first, representation_mse(case.replay.model, case.replay.received.model, true, recovered), *rest]


def likeness(true: Tensor, recovered: Tensor, world: World) -> list[Measured | Skipped]:
    """Of rows [n, ...] as the model sees them, and of their pixels, cut off at 0 and 1, where they are pixels."""
    found: list[Measured | Skipped] = [mse(true, recovered, "normalised")]
    pixels, made = world.unit(true), world.unit(recovered)
    if pixels is not None and made is not None:
        found += [mse(pixels, made, "unit"), psnr(pixels, made, "unit", 1.0)]
        if pixels.ndim == 4:
            found += [ssim(pixels, made), lpips(pixels, made, world.data_dir)]
    return found
