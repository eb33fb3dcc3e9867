"""Rows times weights in float32 on the matrix units, for layers with far more weights than rows.

Such a product waits for its weights; here each is read once, by enough programs to keep the memory busy. cuBLAS's is
none of the matrix units: on an H200 296 us for `pfl-cifar`'s hidden layer where this takes 89, and 159 where 44 for
`lmd-shards-10`'s. With TF32 or half precision cuBLAS's own are as fast.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import FULL, LEAST, precision

OUTPUTS, INPUTS = 128, 32  # of a tile of weights
SHORT = 4 * INPUTS  # inputs that a program reads at least


@triton.jit
def _times(
    rows, weights, out, B, OUT, IN, M, LENGTH,
    PRECISION: tl.constexpr, BO: tl.constexpr, BB: tl.constexpr, BI: tl.constexpr,
):  # fmt: skip
    """out[part, m, b, o] = sum over the part's i of rows[m, b, i] weights[m, o, i]."""
    m, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    o, b = tl.program_id(0) * BO + tl.arange(0, BO), tl.arange(0, BB)
    rows += m * B * IN
    weights += m * OUT * IN
    total = tl.zeros([BO, BB], tl.float32)
    for first in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, IN), BI):
        i = first + tl.arange(0, BI)
        known = (i < IN)[None, :]
        left = tl.load(weights + (o[:, None] * IN + i[None, :]), mask=(o < OUT)[:, None] & known, other=0.0)
        right = tl.load(rows + (b[:, None] * IN + i[None, :]), mask=(b < B)[:, None] & known, other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
    place = out + ((part * M + m) * B + b[None, :]) * OUT + o[:, None]
    tl.store(place, total, mask=(b < B)[None, :] & (o < OUT)[:, None])


def product(rows: Tensor, weights: Tensor) -> Tensor:
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o]; long sums in parts, so that the whole device has work."""
    (m, b, i), o = rows.shape, weights.shape[1]
    tiles = triton.cdiv(o, OUTPUTS)
    parts = max(min(FULL // (tiles * m), triton.cdiv(i, SHORT)), 1)
    length = triton.cdiv(triton.cdiv(i, parts), INPUTS) * INPUTS
    parts = triton.cdiv(i, length)
    out = torch.empty(parts, m, b, o, device=rows.device)
    wide = max(triton.next_power_of_2(b), LEAST)
    _times[(tiles, parts, m)](
        rows, weights, out, b, o, i, m, length, precision(), OUTPUTS, wide, INPUTS, num_warps=4, num_stages=4
    )
    return out[0] if parts == 1 else out.sum(0)
