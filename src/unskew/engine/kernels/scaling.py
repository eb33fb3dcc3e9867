"""Normalisation by known statistics, as in evaluation: a gain and a shift for each channel, and the cut that follows.

One pass; PyTorch's rule for mapped clients makes five (a copy there and back, the statistics, the gain, the shift).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers of a program


@triton.jit
def _scale(
    x, gain, shift, out, TOTAL,
    N: tl.constexpr, BIG: tl.constexpr, SMALL: tl.constexpr, CHANNELS: tl.constexpr, CUT: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Planes of N numbers, BIG of them a client's, SMALL of them with the same channel side by side."""
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    plane = n // N
    channel = plane // BIG * CHANNELS + plane // SMALL % CHANNELS
    seen = tl.load(x + n, mask=n < TOTAL, other=0.0).to(tl.float32)
    gained = tl.load(gain + channel, mask=n < TOTAL, other=0.0)
    new = seen * gained + tl.load(shift + channel, mask=n < TOTAL, other=0.0)
    if CUT:
        new = tl.where(new < 0, 0.0, new)
    tl.store(out + n, new.to(out.dtype.element_ty), mask=n < TOTAL)


def scaled(x: Tensor, gain: Tensor, shift: Tensor, channel: int, cut: bool) -> Tensor:
    """x [m, c, b, h, w] or [m, b, c, h, w] (`channel` is the axis of c) with gain and shift [m, c]."""
    x, out = x.contiguous(), torch.empty_like(x, memory_format=torch.contiguous_format)
    small = x.shape[2] if channel == 1 else 1
    _scale[(triton.cdiv(x.numel(), BLOCK),)](
        x, gain.float().contiguous(), shift.float().contiguous(), out, x.numel(),
        x.shape[3:].numel(), x.shape[1] * x.shape[2], small, x.shape[channel], cut, BLOCK,
    )  # fmt: skip
    return out
