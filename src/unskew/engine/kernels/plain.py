"""The same functions of a whole cohort in plain PyTorch: for the CPU, for float64, and where Triton is missing."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def convolve(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w']."""
    m, o, b = len(x), w.shape[1], x.shape[2]
    rows = x.permute(2, 0, 1, 3, 4).flatten(1, 2)
    out = F.conv2d(rows, w.flatten(0, 1), None, stride, padding, groups=m)
    return out.view(b, m, o, *out.shape[2:]).permute(1, 2, 0, 3, 4)


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Planes x [r, b, h, w] with one filter w [r, kh, kw] each."""
    return F.conv2d(x.transpose(0, 1), w[:, None], None, stride, padding, groups=len(x)).transpose(0, 1)


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows x [r, n] to mean 0 and variance 1, then gain and shift [r]; also their means and variances."""
    out = F.batch_norm(x[None], None, None, gain, shift, True, 0.0, eps)[0]
    variance, mean = torch.var_mean(x.detach(), 1, correction=0)
    return out, mean, variance
