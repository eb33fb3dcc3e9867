"""Convolution of a cohort as one implicit matrix product (implicit GEMM), each client with its own filters.

cuDNN's grouped convolution starts one kernel per client, and unfolding the rows would write them 25 times for a 5x5
filter. Here each program gathers the rows that it multiplies: 255 launches a step became a few, and together with the
CUDA graph `lmd-shards-10` fell from 406 to 145 ms a round. Merging the axes of few channels and the taps, and the
pooling kernel, took it to 116; larger tiles saved 13 of the products' 32 ms. Shapes: x [m, c, b, h, w],
w [m, o, c, kh, kw], out [m, o, b, h', w'], so that a client's product is [b h' w', c kh kw] @ [c kh kw, o].

In float32 the kernels load rows as integers: Triton then passes them to the tensor cores in registers. From shared
memory the tensor cores want the summed axis innermost, but positions are innermost here, and transposing a tile on its
way there splits every store into four.

Bias, ReLU and 2 x 2 pooling are applied before the product is written, so only a quarter of it is written. Positions
are ordered so that one thread holds all four of a window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import (
    COLUMN,
    MIN_PROGRAMS,
    MIN_SIDE,
    TileShape,
    output_positions,
    outputs_per_row,
    precision,
    tap_bits,
    tile_columns,
    tile_kind,
)
from unskew.engines.stacked.kernels.pooling import apply_relu, running_max

MIN_ROWS = 64  # of a tile: fewer do not fill the tensor cores of four warps
# `python benchmarks/speed/tiles.py` times other tiles. TILES_FLAT is for few channels.
TILES_BY_TAP = {"half": TileShape(256, 32, 8, 2), "tf32": TileShape(256, 16, 4, 3), "tf32x3": TileShape(128, 16, 4, 3)}
TILES_FLAT = {"half": TileShape(256, 16, 4, 3), "tf32": TileShape(256, 16, 4, 3), "tf32x3": TileShape(128, 16, 4, 3)}
# The bit of a position that distinguishes the two lines of a window: the tensor cores give a thread rows of the product
# that are 8 apart, and rows that are as far apart as its warps multiply at once.
LINE_BIT = {"half": 128, "tf32": 64, "tf32x3": 64}


@triton.jit
def _max_of_windows(best, LINE: tl.constexpr, PAIR: tl.constexpr, BN: tl.constexpr, BO: tl.constexpr):
    """Maximum and argmax of each window of a tile in the order of windows."""
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
    best, index = tl.reshape(first, [ROWS, COLUMNS]), tl.zeros([ROWS, COLUMNS], tl.int8)
    best, index = running_max(tl.reshape(second, [ROWS, COLUMNS]), best, index, 1)
    best, index = running_max(tl.reshape(third, [ROWS, COLUMNS]), best, index, 2)
    return running_max(tl.reshape(fourth, [ROWS, COLUMNS]), best, index, 3)


@triton.jit
def _store(
    best, index, out, argmax, n, o, m, B, OUT,
    SIZE: tl.constexpr, RELU: tl.constexpr, SAVE_ARGMAX: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """Apply the ReLU and store positions n of channels o into planes of SIZE; 32 bits index a client's numbers."""
    if RELU:
        best, index = apply_relu(best, index)
    start, inside = m * OUT * B * SIZE, (o < OUT)[None, :] & (n < B * SIZE)[:, None]
    if FLAT:
        at = (n // SIZE * (OUT * SIZE) + n % SIZE)[:, None] + (o * SIZE)[None, :]
    else:
        at = n[:, None] + (o * (B * SIZE))[None, :]
    tl.store(out + start + at, best, mask=inside)
    if SAVE_ARGMAX:
        tl.store(argmax + start + at, index, mask=inside)


@triton.jit
def _epilogue(
    total, out, bias, argmax, m, B, OUT, WO: tl.constexpr, PLANE: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Apply bias, max pooling (if LINE) and ReLU as pooling.py does, and store the product."""
    OUTPUTS: tl.constexpr = BO // PAIR
    if BIAS:
        channel = tl.program_id(1) * OUTPUTS + tl.arange(0, BO) % OUTPUTS
        total += tl.load(bias + m * OUT + channel, mask=channel < OUT, other=0.0).to(tl.float32)[None, :]
    best, o = total.to(out.dtype.element_ty), tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    if LINE:
        WINDOWS: tl.constexpr = BN * PAIR // 4
        best, index = _max_of_windows(best, LINE, PAIR, BN, BO)
        n = tl.program_id(0) * WINDOWS + tl.arange(0, WINDOWS)
        _store(best, index, out, argmax, n, o, m, B, OUT, PLANE // 4, RELU, True, FLAT)
    else:
        n, index = tl.program_id(0) * BN + tl.arange(0, BN), tl.zeros([BN, OUTPUTS], tl.int8)
        if PAIR == 2:
            n = n // WO * (2 * WO) + n % WO
            upper, lower = tl.split(tl.permute(tl.reshape(best, [BN, 2, OUTPUTS]), (0, 2, 1)))
            _store(upper, index, out, argmax, n, o, m, B, OUT, PLANE, RELU, RELU, FLAT)
            _store(lower, index, out, argmax, n + WO, o, m, B, OUT, PLANE, RELU, RELU, FLAT)
        else:
            _store(best, index, out, argmax, n, o, m, B, OUT, PLANE, RELU, RELU, FLAT)


@triton.jit
def _multiply(
    x, w, out, bias, argmax, B, OUT, COLUMNS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    SHARED: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[m, o, n] = sum over taps and channels of x[m, c, n shifted by the tap] w[m, tap, o, c]."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    c = tl.arange(0, BC)
    plane = B * H * W
    at, valid = output_positions(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, LINE)
    rows_of, filters_of = x + m * C * plane, w if SHARED else w + m * KH * KW * COLUMNS * C
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    CHUNKS: tl.constexpr = (C + BC - 1) // BC
    total = tl.zeros([BN, BO], tl.float32)
    for step in range(KH * KW * CHUNKS):  # a single loop, so that loads are pipelined across taps
        tap, first = step // CHUNKS, step % CHUNKS * BC
        needed = tap_bits(tap, KW)
        inside, in_filters = ((valid & needed) == needed)[:, None], (o < COLUMNS)[:, None]
        if C % BC:
            in_channels = (first + c < C)[None, :]
            inside, in_filters = inside & in_channels, in_filters & in_channels
        # In this order no tile of offsets is kept: it would take two registers a number and lower occupancy.
        offset = (at + (tap // KW * W + tap % KW))[:, None] + ((first + c) * plane)[None, :]
        rows = tl.load(rows_of + offset, mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        filters = tl.load(
            filters_of + (tap * COLUMNS + o[:, None]) * C + (first + c)[None, :], mask=in_filters, other=0.0
        )
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _epilogue(total, out, bias, argmax, m, B, OUT, WO, HO * WO, BIAS, RELU, PAIR, LINE, FLAT, BO, BN)


@triton.jit
def _multiply_flat(
    x, w, out, bias, argmax, B, OUT, COLUMNS,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, RELU: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    SHARED: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same with channels and taps merged into one axis, w[m, o, k]: for too few channels to fill a tile."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    K: tl.constexpr = C * KH * KW
    plane = B * H * W
    at, valid = output_positions(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, LINE)
    rows_of, filters_of = x + m * C * plane, w if SHARED else w + m * COLUMNS * K
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    total = tl.zeros([BN, BO], tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tap = k % (KH * KW)
        offset, needed = k // (KH * KW) * plane + tap // KW * W + tap % KW, tap_bits(tap, KW)
        inside = ((valid[:, None] & needed[None, :]) == needed[None, :]) & (k < K)[None, :]
        rows = tl.load(rows_of + (at[:, None] + offset[None, :]), mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        in_filters = (o < COLUMNS)[:, None] & (k < K)[None, :]
        filters = tl.load(filters_of + o[:, None] * K + k[None, :], mask=in_filters, other=0.0)
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _epilogue(total, out, bias, argmax, m, B, OUT, WO, HO * WO, BIAS, RELU, PAIR, LINE, FLAT, BO, BN)


class ConvEpilogue(NamedTuple):
    """Operations fused into a convolution; `flat` stores the output row by row, [m, b, o, ...]."""

    bias: Tensor | None = None
    relu: bool = False
    pool: int = 1  # side of the windows, 1 or 2
    flat: bool = False


NO_EPILOGUE = ConvEpilogue()


def implicit_matmul(
    x: Tensor, w: Tensor, stride: int, padding: int, after: ConvEpilogue = NO_EPILOGUE
) -> tuple[Tensor, Tensor]:
    """The convolution with its epilogue, and the argmax of each pooling window, both in their memory order.

    Filters with a leading axis of 1 are shared by all clients.
    """
    (m, c, b, h, width), (o, kh, kw) = x.shape, (w.shape[1], *w.shape[3:])
    ho, wo = (h + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    out = x.new_empty(m, *((b, o) if after.flat else (o, b)), ho // after.pool, wo // after.pool)
    argmax = torch.empty_like(out, dtype=torch.int8) if after.relu or after.pool > 1 else out
    by_tap, pair = c >= MIN_SIDE, outputs_per_row(o, ho, kh, stride)
    kernel, pack = _multiply if by_tap else _multiply_flat, _pack_filter_pairs if pair == 2 else _pack_filters
    filters = pack(w, by_tap)
    tile, tile_width = (TILES_BY_TAP if by_tap else TILES_FLAT)[tile_kind(x)], pair * tile_columns(o)
    depth = min(triton.next_power_of_2(c), tile.depth) if by_tap else tile.depth
    # Pairs have twice the columns: with short sums use half the rows, which keeps as many programs resident.
    n, column_tiles = b * ho * wo // pair, triton.cdiv(o, tile_columns(o))
    rows = tile.rows if by_tap else tile.rows // pair
    while rows > MIN_ROWS and triton.cdiv(n, rows) * column_tiles * m < MIN_PROGRAMS:
        rows //= 2  # few clients: smaller tiles for more programs
    line = 0 if after.pool == 1 else min(LINE_BIT[tile_kind(x)], rows // 2)
    kernel[(triton.cdiv(n, rows), column_tiles, m)](
        x, filters, out, out if after.bias is None else after.bias.contiguous(), argmax,
        b, o, o if pair == 1 else tile_width,
        c, h, width, ho, wo, kh + pair - 1, kw, stride, padding, precision(),
        after.bias is not None, after.relu, pair, line, after.flat, len(w) < m,
        tile_width, rows, depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, argmax


def _pack_filters(w: Tensor, by_tap: bool) -> Tensor:
    """Filters in the kernels' memory order: [m, kh, kw, o, c] by tap, otherwise [m, o, c, kh, kw]."""
    return (w.permute(0, 3, 4, 1, 2) if by_tap else w).contiguous()


def _pack_filter_pairs(w: Tensor, by_tap: bool) -> Tensor:
    """The same for pairs of outputs, [m, kh + 1, kw, 2 o, c]: with a line of zeros at the end, then at the start."""
    m, o, c, kh, kw = w.shape
    shape = (m, kh + 1, kw, 2, tile_columns(o), c) if by_tap else (m, 2, tile_columns(o), c, kh + 1, kw)
    out = w.new_zeros(shape)
    filters = out.permute(0, 3, 4, 5, 1, 2) if by_tap else out
    filters[:, 0, :o, :, :kh] = w
    filters[:, 1, :o, :, 1:] = w
    return out
