"""Rows times weights in float32 on the tensor cores, for layers with far more weights than rows.

Such a product is bound by reading the weights; here each is read once, by enough programs to saturate the memory.
cuBLAS does not use the tensor cores for float32: on an H200 it takes 296 us for `pfl-cifar`'s hidden layer where this
kernel takes 89, and 159 instead of 44 for `lmd-shards-10`'s. With TF32 or half precision cuBLAS is as fast.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import MIN_PROGRAMS, MIN_SIDE, precision

OUTPUTS, INPUTS = 128, 32  # of a tile of weights
MIN_INPUTS = 4 * INPUTS  # that a program reads


@triton.jit
def _matmul_fp32(
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
        inside = (i < IN)[None, :]
        left = tl.load(weights + (o[:, None] * IN + i[None, :]), mask=(o < OUT)[:, None] & inside, other=0.0)
        right = tl.load(rows + (b[:, None] * IN + i[None, :]), mask=(b < B)[:, None] & inside, other=0.0)
        total = tl.dot(left, tl.trans(right), total, input_precision=PRECISION)
    destination = out + ((part * M + m) * B + b[None, :]) * OUT + o[:, None]
    tl.store(destination, total, mask=(b < B)[None, :] & (o < OUT)[:, None])


def matmul_fp32(rows: Tensor, weights: Tensor) -> Tensor:
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o]; long sums are split so that the whole device has work."""
    (m, b, i), o = rows.shape, weights.shape[1]
    tiles = triton.cdiv(o, OUTPUTS)
    parts = max(min(MIN_PROGRAMS // (tiles * m), triton.cdiv(i, MIN_INPUTS)), 1)
    length = triton.cdiv(triton.cdiv(i, parts), INPUTS) * INPUTS
    parts = triton.cdiv(i, length)
    out = torch.empty(parts, m, b, o, device=rows.device)
    batch_tile = max(triton.next_power_of_2(b), MIN_SIDE)
    _matmul_fp32[(tiles, parts, m)](
        rows, weights, out, b, o, i, m, length, precision(), OUTPUTS, batch_tile, INPUTS, num_warps=4, num_stages=4
    )
    return out[0] if parts == 1 else out.sum(0)
