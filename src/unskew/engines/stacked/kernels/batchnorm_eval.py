"""Normalisation by known statistics, as in evaluation: mean, gain and shift of each channel, and the ReLU that follows.

One pass; PyTorch's rule for mapped clients makes five (a copy there and back, the statistics, the gain, the shift),
which were most of the teacher's 1360 ms of kernels in a round of FLea on `flea-mobilenet` (H200, TF32).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers of a program, at most


@triton.jit
def _scale(x, mean, gain, shift, out, N, ROWS, CHANNELS, RELU: tl.constexpr, BN: tl.constexpr):
    """Rows of N numbers of one channel, ROWS of them a client's, one channel after another."""
    row = tl.program_id(0)
    channel = row // ROWS * CHANNELS + row % CHANNELS
    at = tl.program_id(1) * BN + tl.arange(0, BN)
    place = row.to(tl.int64) * N + at
    seen = tl.load(x + place, mask=at < N, other=0.0).to(tl.float32)
    new = (seen - tl.load(mean + channel)) * tl.load(gain + channel) + tl.load(shift + channel)
    if RELU:
        new = tl.where(new < 0, 0.0, new)
    tl.store(out + place, new.to(out.dtype.element_ty), mask=at < N)


def scaled(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """x [m, c, b, h, w] or [m, b, c, h, w] (`channel` is the axis of c) with mean, gain and shift [m, c]."""
    x = x.contiguous()
    out, rows = torch.empty_like(x), x.shape[1 : channel + 1].numel()
    n = x.numel() // (len(x) * rows)
    size = min(BLOCK, triton.next_power_of_2(n))
    _scale[(len(x) * rows, triton.cdiv(n, size))](
        x, *(t.float().contiguous() for t in (mean, gain, shift)), out, n, rows, x.shape[channel], relu, size
    )
    return out
