"""The same functions of a whole cohort in plain PyTorch: for the CPU, for float64, and where Triton is missing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.models.seeded_dropout import kept
from unskew.protocol.step_view import at_least_float32


def convolve(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w']."""
    m, o, b = len(x), w.shape[1], x.shape[2]
    rows = x.permute(2, 0, 1, 3, 4).flatten(1, 2)
    out = F.conv2d(rows, w.flatten(0, 1), None, stride, padding, groups=m)
    return out.view(b, m, o, *out.shape[2:]).permute(1, 2, 0, 3, 4)


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Planes x [r, b, h, w] with one filter w [r, kh, kw] each."""
    return F.conv2d(x.transpose(0, 1), w[:, None], None, stride, padding, groups=len(x)).transpose(0, 1)


def pool(x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int) -> Tensor:
    """Bias [m, c], ReLU, and the largest of every k x k window of x [m, c, b, h, w] or [m, b, c, h, w]."""
    if bias is not None:
        x = x + bias.unsqueeze(3 - channel)[..., None, None]
    x = x.relu() if relu else x
    return x if k == 1 else F.max_pool2d(x.flatten(0, 1), k).unflatten(0, x.shape[:2])


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Rows x [r, n] to mean 0 and variance 1, gain and shift [r], ReLU; also their means and variances."""
    out = F.batch_norm(x[None], None, None, gain, shift, True, 0.0, eps)[0]
    variance, mean = torch.var_mean(at_least_float32(x.detach()), 1, correction=0)
    return out.relu() if relu else out, mean, variance


def scale(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """(x - mean) gain + shift, ReLU, of x [m, c, b, h, w] or [m, b, c, h, w] and [m, c]."""
    mean, gain, shift = (t.unsqueeze(3 - channel)[..., None, None] for t in (mean, gain, shift))
    # Centred first, as the gain's gradient needs it; statistics are never in half precision.
    out = ((x - mean) * gain + shift).to(x.dtype)
    return out.relu() if relu else out


def drop(x: Tensor, seeds: Tensor, p: float) -> Tensor:
    """x [m, ...] without the numbers that a hash of each client's seed and of their place falls below p for."""
    keep = torch.stack([kept(seed, x[0].numel(), p) for seed in seeds]).view(x.shape)
    return torch.where(keep, x / (1 - p), 0.0)
