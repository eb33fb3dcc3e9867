"""Functions of a whole cohort: kernels of our own on a GPU, plain PyTorch elsewhere."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor
from torch.nn import functional as F

from unskew.engine.kernels import plain

HALF_AND_SINGLE = (torch.float32, torch.bfloat16, torch.float16)


def ours(x: Tensor) -> bool:
    """Whether the kernels can take this tensor; float64 is for checking, not for speed."""
    return x.is_cuda and x.dtype in HALF_AND_SINGLE and importlib.util.find_spec("triton") is not None


def convolve(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """x [m, c, b, h, w] with filters w [m, o, c, kh, kw] of each client to [m, o, b, h', w']."""
    m, o, b = len(x), w.shape[1], x.shape[2]
    if w.shape[3:] == (1, 1) and stride == 1 and padding == 0:
        return torch.bmm(w.view(m, o, -1), x.reshape(m, x.shape[1], -1)).view(m, o, b, *x.shape[3:])
    if not ours(x):
        return plain.convolve(x, w, stride, padding)
    from unskew.engine.kernels.conv import Convolve

    return Convolve.apply(x, w, stride, padding)


def depthwise(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """Planes x [r, b, h, w] with one filter w [r, kh, kw] each."""
    if not ours(x):
        return plain.depthwise(x, w, stride, padding)
    from unskew.engine.kernels.planes import Depthwise

    return Depthwise.apply(x, w, stride, padding)


def largest(x: Tensor, kernel: int) -> Tensor:
    """The largest of every kernel x kernel window of planes x [r, b, h, w]; windows do not overlap."""
    if not ours(x):
        return F.max_pool2d(x, kernel)
    from unskew.engine.kernels.planes import MaxPool

    return MaxPool.apply(x, kernel)


def normalise(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows x [r, n] to mean 0 and variance 1, then gain and shift [r]; also their means and variances."""
    if not ours(x):
        return plain.normalise(x, gain, shift, eps)
    from unskew.engine.kernels.norm import Normalise

    return Normalise.apply(x, gain, shift, eps)
