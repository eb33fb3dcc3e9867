"""A step of SGD along a gradient that is a product: each tile of it is multiplied where its weights are moved.

Weights are read and written once, and velocities; the gradient is nowhere in memory. See `lowrank_grad` for the gain.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import LEAST, precision

OUTPUTS, INPUTS = 32, 128  # of a tile of weights
ROWS = 64  # of the batch, multiplied at once at most


@triton.jit
def moved(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV: tl.constexpr, begin, at, there, d):
    """A step of SGD of the numbers at begin + at along d; `there` is None where none of them is beyond the end."""
    lr = tl.load(rate).to(tl.float32)
    w = tl.load(leaf + begin + at, mask=there)
    if DECAY is not None:
        d += DECAY * w
    if velocity is not None:
        v = MOMENTUM * tl.load(velocity + begin + at, mask=there) + d
        tl.store(velocity + begin + at, v, mask=there)
        if NESTEROV:
            d += MOMENTUM * v
        else:
            d = v
    tl.store(leaf + begin + at, w - lr * d, mask=there)


@triton.jit
def _follow(
    leaf, back, rows, beside, velocity, rate, B, OUT, IN, DECAY, MOMENTUM,
    NESTEROV: tl.constexpr, PRECISION: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """leaf[m, o, i] moved along the sum over b of back[m, b, o] rows[m, b, i]; a client's numbers count in 32 bits."""
    m = tl.program_id(2).to(tl.int64)
    o, i = tl.program_id(1) * BO + tl.arange(0, BO), tl.program_id(0) * BI + tl.arange(0, BI)
    back += m * B * OUT
    rows += m * B * IN
    # Read as integers, as rows of a convolution are (conv.py).
    SINGLE: tl.constexpr = rows.dtype.element_ty == tl.float32
    if SINGLE:
        back = back.to(tl.pointer_type(tl.int32), bitcast=True)
        rows = rows.to(tl.pointer_type(tl.int32), bitcast=True)
    # Inputs by outputs: turned, the product comes to lie as the weights do without a way through shared memory.
    turned = tl.zeros([BI, BO], tl.float32)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB)
        left = tl.load(rows + (b[:, None] * IN + i[None, :]), mask=(b < B)[:, None] & (i < IN)[None, :], other=0)
        right = tl.load(back + (b[:, None] * OUT + o[None, :]), mask=(b < B)[:, None] & (o < OUT)[None, :], other=0)
        if SINGLE:
            left, right = left.to(tl.float32, bitcast=True), right.to(tl.float32, bitcast=True)
        turned = tl.dot(tl.trans(left), right, turned, input_precision=PRECISION)
    d = tl.trans(turned)
    first, at, there = m * OUT * IN, o[:, None] * IN + i[None, :], (o < OUT)[:, None] & (i < IN)[None, :]
    if beside is not None:
        d += tl.load(beside + first + at, mask=there)
    moved(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, first, at, there, d)


def follow(
    leaf: Tensor,
    back: Tensor,
    rows: Tensor,
    beside: Tensor | None,
    velocity: Tensor | None,
    lr: Tensor,
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step of a leaf [m, o, i] in float32; back [m, b, o] and rows [m, b, i] are in float32 or half precision."""
    (m, b, o), i = back.shape, rows.shape[2]
    deep = max(min(triton.next_power_of_2(b), ROWS), LEAST)
    _follow[(triton.cdiv(i, INPUTS), triton.cdiv(o, OUTPUTS), m)](
        leaf, back, rows, beside, velocity, lr, b, o, i, decay or None, momentum,
        nesterov, precision(), OUTPUTS, INPUTS, deep, num_warps=4, num_stages=1,
    )  # fmt: skip
