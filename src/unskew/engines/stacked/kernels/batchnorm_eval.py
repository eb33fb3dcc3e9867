"""Batch normalisation in evaluation: given mean, gain and shift of each channel, with optional ReLU.

It makes one pass where PyTorch's vmap rule makes five (two copies, the statistics, the gain, the shift), which were
most of the teacher's 1360 ms of kernels in a round of FLea on `flea-mobilenet` (H200, TF32).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers per program, at most


@triton.jit
def _scale(x, mean, gain, shift, out, N, ROWS, CHANNELS, RELU: tl.constexpr, BN: tl.constexpr):
    """Each row has N numbers of one channel; a client has ROWS rows, in the order of the channels."""
    row = tl.program_id(0)
    channel = row // ROWS * CHANNELS + row % CHANNELS
    at = tl.program_id(1) * BN + tl.arange(0, BN)
    offset = row.to(tl.int64) * N + at
    value = tl.load(x + offset, mask=at < N, other=0.0).to(tl.float32)
    new = (value - tl.load(mean + channel)) * tl.load(gain + channel) + tl.load(shift + channel)
    if RELU:
        new = tl.where(new < 0, 0.0, new)
    tl.store(out + offset, new.to(out.dtype.element_ty), mask=at < N)


def batchnorm_eval(x: Tensor, mean: Tensor, gain: Tensor, shift: Tensor, channel: int, relu: bool) -> Tensor:
    """x [m, c, b, h, w] or [m, b, c, h, w] (`channel` is the axis of c) with mean, gain and shift [m, c]."""
    x = x.contiguous()
    out, rows = torch.empty_like(x), x.shape[1 : channel + 1].numel()
    n = x.numel() // (len(x) * rows)
    size = min(BLOCK, triton.next_power_of_2(n))
    _scale[(len(x) * rows, triton.cdiv(n, size))](
        x, *(t.float().contiguous() for t in (mean, gain, shift)), out, n, rows, x.shape[channel], relu, size
    )
    return out
