"""A step of SGD with a low-rank gradient: each tile of the gradient is computed where its weights are updated.

Weights and velocities are read and written once, and the gradient is never stored. lowrank_grad.py has the gain.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import MIN_SIDE, precision

OUTPUTS, INPUTS = 32, 128  # of a tile of weights
ROWS = 64  # of the batch that are multiplied at once, at most


@triton.jit
def apply_sgd(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV: tl.constexpr, begin, at, inside, d):
    """Update the numbers at begin + at with gradient d; `inside` is None if no mask is needed."""
    lr = tl.load(rate).to(tl.float32)
    w = tl.load(leaf + begin + at, mask=inside)
    if DECAY is not None:
        d += DECAY * w
    if velocity is not None:
        v = MOMENTUM * tl.load(velocity + begin + at, mask=inside) + d
        tl.store(velocity + begin + at, v, mask=inside)
        if NESTEROV:
            d += MOMENTUM * v
        else:
            d = v
    tl.store(leaf + begin + at, w - lr * d, mask=inside)


@triton.jit
def _sgd_lowrank(
    leaf, back, rows, extra, velocity, rate, B, OUT, IN, DECAY, MOMENTUM,
    NESTEROV: tl.constexpr, PRECISION: tl.constexpr, BO: tl.constexpr, BI: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """SGD step of leaf[m, o, i] with gradient sum over b of back[m, b, o] rows[m, b, i]; 32-bit offsets per client."""
    m = tl.program_id(2).to(tl.int64)
    o, i = tl.program_id(1) * BO + tl.arange(0, BO), tl.program_id(0) * BI + tl.arange(0, BI)
    back += m * B * OUT
    rows += m * B * IN
    # Loaded as integers for the same reason as in conv_matmul.py.
    SINGLE: tl.constexpr = rows.dtype.element_ty == tl.float32
    if SINGLE:
        back = back.to(tl.pointer_type(tl.int32), bitcast=True)
        rows = rows.to(tl.pointer_type(tl.int32), bitcast=True)
    # Inputs by outputs: transposed, the product gets the weights' layout without a pass through shared memory.
    transposed = tl.zeros([BI, BO], tl.float32)
    for first in range(0, B, BB):
        b = first + tl.arange(0, BB)
        left = tl.load(rows + (b[:, None] * IN + i[None, :]), mask=(b < B)[:, None] & (i < IN)[None, :], other=0)
        right = tl.load(back + (b[:, None] * OUT + o[None, :]), mask=(b < B)[:, None] & (o < OUT)[None, :], other=0)
        if SINGLE:
            left, right = left.to(tl.float32, bitcast=True), right.to(tl.float32, bitcast=True)
        transposed = tl.dot(tl.trans(left), right, transposed, input_precision=PRECISION)
    d = tl.trans(transposed)
    first, at, inside = m * OUT * IN, o[:, None] * IN + i[None, :], (o < OUT)[:, None] & (i < IN)[None, :]
    if extra is not None:
        d += tl.load(extra + first + at, mask=inside)
    apply_sgd(leaf, velocity, rate, DECAY, MOMENTUM, NESTEROV, first, at, inside, d)


def sgd_lowrank_step(
    leaf: Tensor,
    back: Tensor,
    rows: Tensor,
    extra: Tensor | None,
    velocity: Tensor | None,
    lr: Tensor,
    decay: float,
    momentum: float,
    nesterov: bool,
) -> None:
    """One step of a leaf [m, o, i] in float32; back [m, b, o] and rows [m, b, i] are in float32 or half precision."""
    (m, b, o), i = back.shape, rows.shape[2]
    depth = max(min(triton.next_power_of_2(b), ROWS), MIN_SIDE)
    _sgd_lowrank[(triton.cdiv(i, INPUTS), triton.cdiv(o, OUTPUTS), m)](
        leaf, back, rows, extra, velocity, lr, b, o, i, decay or None, momentum,
        nesterov, precision(), OUTPUTS, INPUTS, depth, num_warps=4, num_stages=1,
    )  # fmt: skip
