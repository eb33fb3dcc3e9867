"""How near what was recovered is to the truth, as values with their space."""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unskew.privacy.metrics.measured import Measured
from unskew.privacy.metrics.pixels import mse, psnr
from unskew.privacy.metrics.structure import ssim

FAR = 1e30  # what is not finite is farther than anything


def paired(true: Tensor, recovered: Tensor) -> Tensor:
    """[n] which recovered row stands for which true one, so that the errors together are smallest.

    The order of the rows in a message means nothing.
    """
    errors = torch.cdist(true.double().flatten(1), recovered.double().flatten(1)).square()
    _, columns = linear_sum_assignment(errors.nan_to_num(FAR, FAR).clamp_max(FAR).cpu().numpy())
    return torch.as_tensor(columns, device=true.device)


def measure(true: Tensor, recovered: Tensor, unit: Callable[[Tensor], Tensor | None]) -> list[Measured]:
    """Of rows [n, ...] as the model sees them, and of their pixels, cut off at 0 and 1, where they are pixels."""
    found = [mse(true, recovered, "normalised")]
    pixels, made = unit(true), unit(recovered)
    if pixels is not None and made is not None:
        found += [mse(pixels, made, "unit"), psnr(pixels, made, "unit", 1.0)]
        similar = ssim(pixels, made) if pixels.ndim == 4 else None
        found += [similar] if isinstance(similar, Measured) else []
    return found
