"""Convolution of a whole cohort as one implicit matrix product, each client with its own filters.

A grouped convolution of cuDNN starts one kernel per client; unfolding the rows writes them 25 times for a 5x5 filter.
Here one program gathers the rows it multiplies: 255 launches a step became a few, and with the recorded step
`lmd-shards-10` fell from 406 to 145 ms a round. Filters of few channels as one axis with the taps, and a pooling of our
own, took it to 116; larger tiles took 13 of the products' 32 ms. Shapes: x [m, c, b, h, w], w [m, o, c, kh, kw], out
[m, o, b, h', w'], so that a client's product is [b h' w', c kh kw] @ [c kh kw, o].

In single precision the products read rows as integers: Triton then hands them to the matrix units in registers. From
shared memory these want the summed axis innermost, but places are, and turning a tile on its way makes four stores of
every one.

Bias, ReLU and 2 x 2 pooling are applied before a product is written, so only a quarter of it is written. Places are
ordered so that one thread has all four of a window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import (
    COLUMN,
    FULL,
    LEAST,
    TileShape,
    kind,
    needs,
    pairs,
    places,
    precision,
    side,
)
from unskew.engines.stacked.kernels.pooling import better, cut_at_zero

NARROW = 64  # rows of the smallest tile: fewer do not fill four warps' matrix units
# Half precision, TF32 and float32; `python benchmarks/speed/tiles.py` times others.
TAPS = {"half": TileShape(256, 32, 8, 2), "tf32": TileShape(256, 16, 4, 3), "tf32x3": TileShape(128, 16, 4, 3)}
FLAT = {"half": TileShape(256, 16, 4, 3), "tf32": TileShape(256, 16, 4, 3), "tf32x3": TileShape(128, 16, 4, 3)}
# The bit of a place's number that tells the two lines of a window apart: of a product of the matrix units a thread has
# rows 8 apart, and rows as many apart as its warps multiply at once.
LINES = {"half": 128, "tf32": 64, "tf32x3": 64}


@triton.jit
def _largest(best, LINE: tl.constexpr, PAIR: tl.constexpr, BN: tl.constexpr, BO: tl.constexpr):
    """The largest of each window and which one it was, of a tile in the order of windows."""
    if PAIR == 2:
        windows = tl.reshape(best, [BN // (2 * COLUMN), 2, COLUMN, 2, BO // 2])
        left, right = tl.split(tl.permute(windows, (0, 2, 4, 3, 1)))
    else:
        windows = tl.reshape(best, [BN // (2 * LINE), 2, LINE // (2 * COLUMN), 2, COLUMN, BO])
        left, right = tl.split(tl.permute(windows, (0, 2, 4, 5, 1, 3)))
    first, third = tl.split(left)
    second, fourth = tl.split(right)
    ROWS: tl.constexpr = BN * PAIR // 4
    COLUMNS: tl.constexpr = BO // PAIR
    best, place = tl.reshape(first, [ROWS, COLUMNS]), tl.zeros([ROWS, COLUMNS], tl.int8)
    best, place = better(tl.reshape(second, [ROWS, COLUMNS]), best, place, 1)
    best, place = better(tl.reshape(third, [ROWS, COLUMNS]), best, place, 2)
    return better(tl.reshape(fourth, [ROWS, COLUMNS]), best, place, 3)


@triton.jit
def _store(
    best, place, out, where, n, o, m, B, OUT,
    SIZE: tl.constexpr, RELU: tl.constexpr, NOTED: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """The ReLU, and numbers of places n and outputs o into planes of SIZE; a client's are counted in 32 bits."""
    if RELU:
        best, place = cut_at_zero(best, place)
    first, there = m * OUT * B * SIZE, (o < OUT)[None, :] & (n < B * SIZE)[:, None]
    if FLAT:
        at = (n // SIZE * (OUT * SIZE) + n % SIZE)[:, None] + (o * SIZE)[None, :]
    else:
        at = n[:, None] + (o * (B * SIZE))[None, :]
    tl.store(out + first + at, best, mask=there)
    if NOTED:
        tl.store(where + first + at, place, mask=there)


@triton.jit
def _leave(
    total, out, bias, where, m, B, OUT, WO: tl.constexpr, PLANE: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Bias, relu and the largest of each window, as `pooling` does, and the product into its place."""
    OUTPUTS: tl.constexpr = BO // PAIR
    if BIAS:
        each = tl.program_id(1) * OUTPUTS + tl.arange(0, BO) % OUTPUTS
        total += tl.load(bias + m * OUT + each, mask=each < OUT, other=0.0).to(tl.float32)[None, :]
    best, o = total.to(out.dtype.element_ty), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    if LINE:
        WINDOWS: tl.constexpr = BN * PAIR // 4
        best, place = _largest(best, LINE, PAIR, BN, BO)
        n = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
        _store(best, place, out, where, n, o, m, B, OUT, PLANE // 4, RELU, True, FLAT)
    else:
        n, place = tl.program_id(0) * BN + tl.arange(0, BN), tl.zeros([BN, OUTPUTS], tl.int8)
        if PAIR == 2:
            n = n // WO * (2 * WO) + n % WO
            upper, lower = tl.split(tl.permute(tl.reshape(best, [BN, 2, OUTPUTS]), (0, 2, 1)))
            _store(upper, place, out, where, n, o, m, B, OUT, PLANE, RELU, RELU, FLAT)
            _store(lower, place, out, where, n + WO, o, m, B, OUT, PLANE, RELU, RELU, FLAT)
        else:
            _store(best, place, out, where, n, o, m, B, OUT, PLANE, RELU, RELU, FLAT)


@triton.jit
def _multiply(
    x, w, out, bias, where_largest, B, OUT, COLUMNS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    SHARED: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[m, o, n] = sum over taps and channels of x[m, c, n moved by the tap] w[m, tap, o, c]."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    c = tl.arange(0, BC)
    plane = B * H * W
    at, there = places(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, LINE)
    rows_of, filters_of = x + m * C * plane, w if SHARED else w + m * KH * KW * COLUMNS * C
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    CHUNKS: tl.constexpr = (C + BC - 1) // BC
    total = tl.zeros([BN, BO], tl.float32)
    for step in range(KH * KW * CHUNKS):  # one loop, so that the loads of the next tap are under way
        tap, first = step // CHUNKS, step % CHUNKS * BC
        need = needs(tap, KW)
        inside, known = ((there & need) == need)[:, None], (o < COLUMNS)[:, None]
        if C % BC:
            some = (first + c < C)[None, :]
            inside, known = inside & some, known & some
        # In this order: one tile of places that stays would cost two registers a number, and programs beside it.
        where = (at + (tap // KW * W + tap % KW))[:, None] + ((first + c) * plane)[None, :]
        rows = tl.load(rows_of + where, mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        filters = tl.load(filters_of + (tap * COLUMNS + o[:, None]) * C + (first + c)[None, :], mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _leave(total, out, bias, where_largest, m, B, OUT, WO, HO * WO, BIAS, RELU, PAIR, LINE, FLAT, BO, BN)


@triton.jit
def _multiply_flat(
    x, w, out, bias, where_largest, B, OUT, COLUMNS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    SHARED: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same with channels and taps as one axis, w[m, o, k]: for few channels, which alone would not fill a tile."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    K: tl.constexpr = C * KH * KW
    plane = B * H * W
    at, there = places(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, LINE)
    rows_of, filters_of = x + m * C * plane, w if SHARED else w + m * COLUMNS * K
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    total = tl.zeros([BN, BO], tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tap = k % (KH * KW)
        where, need = k // (KH * KW) * plane + tap // KW * W + tap % KW, needs(tap, KW)
        inside = ((there[:, None] & need[None, :]) == need[None, :]) & (k < K)[None, :]
        rows = tl.load(rows_of + (at[:, None] + where[None, :]), mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        known = (o < COLUMNS)[:, None] & (k < K)[None, :]
        filters = tl.load(filters_of + o[:, None] * K + k[None, :], mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _leave(total, out, bias, where_largest, m, B, OUT, WO, HO * WO, BIAS, RELU, PAIR, LINE, FLAT, BO, BN)


class ConvEpilogue(NamedTuple):
    """What comes after a convolution; `flat` leaves the rows in memory one after another, [m, b, o, ...]."""

    bias: Tensor | None = None
    relu: bool = False
    pool: int = 1  # side of the windows, 1 or 2
    flat: bool = False


NOTHING = ConvEpilogue()


def multiply(x: Tensor, w: Tensor, stride: int, padding: int, after: ConvEpilogue = NOTHING) -> tuple[Tensor, Tensor]:
    """The convolution and what comes after it, and which place of a window was the largest, both as they lie.

    Filters of a leading axis of 1 are all clients'.
    """
    (m, c, b, h, width), (o, kh, kw) = x.shape, (w.shape[1], *w.shape[3:])
    ho, wo = (h + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    out = x.new_empty(m, *((b, o) if after.flat else (o, b)), ho // after.pool, wo // after.pool)
    noted = torch.empty_like(out, dtype=torch.int8) if after.relu or after.pool > 1 else out
    by_tap, pair = c >= LEAST, pairs(o, ho, kh, stride)
    kernel, filters = (_multiply if by_tap else _multiply_flat), (_twice if pair == 2 else _once)(w, by_tap)
    tile, tall = (TAPS if by_tap else FLAT)[kind(x)], pair * side(o)
    depth = min(triton.next_power_of_2(c), tile.depth) if by_tap else tile.depth
    # Of twice the columns half the rows, where sums are short: as many programs at once.
    n, high, rows = b * ho * wo // pair, triton.cdiv(o, side(o)), tile.rows if by_tap else tile.rows // pair
    while rows > NARROW and triton.cdiv(n, rows) * high * m < FULL:  # few clients: smaller tiles for more programs
        rows //= 2
    line = 0 if after.pool == 1 else min(LINES[kind(x)], rows // 2)
    kernel[(triton.cdiv(n, rows), high, m)](
        x, filters, out, out if after.bias is None else after.bias.contiguous(), noted,
        b, o, o if pair == 1 else tall,
        c, h, width, ho, wo, kh + pair - 1, kw, stride, padding, precision(),
        after.bias is not None, after.relu, pair, line, after.flat, len(w) < m,
        tall, rows, depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, noted


def _once(w: Tensor, by_tap: bool) -> Tensor:
    """Filters [m, kh, kw, o, c], or [m, o, c, kh, kw]."""
    return (w.permute(0, 3, 4, 1, 2) if by_tap else w).contiguous()


def _twice(w: Tensor, by_tap: bool) -> Tensor:
    """The same for pairs of places, [m, kh + 1, kw, 2 o, c]: with a line of zeros at the end, then at the start."""
    m, o, c, kh, kw = w.shape
    shape = (m, kh + 1, kw, 2, side(o), c) if by_tap else (m, 2, side(o), c, kh + 1, kw)
    out = w.new_zeros(shape)
    filters = out.permute(0, 3, 4, 5, 1, 2) if by_tap else out
    filters[:, 0, :o, :, :kh] = w
    filters[:, 1, :o, :, 1:] = w
    return out
