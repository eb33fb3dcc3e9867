"""Convolution of a whole cohort as one implicit matrix product per direction, each client with its own filters.

A grouped convolution of cuDNN starts one kernel per client; unfolding the rows writes them 25 times for a 5x5 filter.
Here one program gathers the rows it multiplies: 255 launches a step became a few, and with the recorded step
`lmd-shards-10` fell from 406 to 145 ms a round. Filters of few channels as one axis with the taps, and a pooling of our
own, took it to 116; larger tiles took 13 of the products' 32 ms. Shapes: x [m, c, b, h, w], w [m, o, c, kh, kw], out
[m, o, b, h', w'], so that a client's product is [b h' w', c kh kw] @ [c kh kw, o].

A place is one of b h' w', a tap one of kh kw. What a program does for every number it gathers is what it costs, so a
place knows once which taps hit its row (two masks of bits), and a tap which bits it needs. In single precision the
products read rows as integers: Triton then hands them to the matrix units in registers. From shared memory these want
the summed axis innermost, but places are, and turning a tile on its way makes four stores of every one.

Bias, cut and pooling by 2 x 2 come before a product is written, so that a quarter of it is. Places then come in such an
order that one thread has all four of a window.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engine.kernels.pooling import better, cut_at_zero

LEAST = 16  # smallest side that the matrix units take
PARTS, FULL = 512, 264  # programs wanted for a gradient of filters, and at least for a product: two a multiprocessor
NARROW = 64  # rows of the smallest tile: fewer do not fill four warps' matrix units


class Tile(NamedTuple):
    """Places of a tile, or taps and channels of a gradient's; how deep it goes at once; its warps and loads ahead."""

    rows: int
    depth: int
    warps: int
    stages: int


# Half precision, TF32 and float32; `python benchmarks/speed/tiles.py` times others.
TAPS = {"half": Tile(256, 32, 8, 2), "tf32": Tile(256, 16, 4, 3), "ieee": Tile(128, 32, 4, 3)}
FLAT = {"half": Tile(256, 16, 4, 3), "tf32": Tile(256, 16, 4, 3), "ieee": Tile(128, 32, 4, 3)}
FILTERS = {"half": Tile(128, 64, 8, 2), "tf32": Tile(128, 32, 4, 4), "ieee": Tile(128, 32, 4, 3)}
# The bit of a place's number that tells the two lines of a window apart: of a product of the matrix units a thread has
# rows 8 apart, and rows as many apart as its warps multiply at once; without them it has four neighbours.
LINES = {"half": 128, "tf32": 64, "ieee": 2}


@triton.jit
def _places(
    n, N,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """Where the first tap of place n reads, and the taps within the row: bit i for line i, bit 16 + j for column j.

    With a LINE, places in the order of 2 x 2 windows: the bit LINE of n is the line within one, the bit COLUMN the
    column, and the others count the windows.
    """
    if LINE:
        COLUMN: tl.constexpr = 8 if LINE > 8 else 1
        window = n // (2 * LINE) * (LINE // 2) + n % LINE // (2 * COLUMN) * COLUMN + n % COLUMN
        below, beside = window // (WO // 2) % (HO // 2) * 2 + n // LINE % 2, window % (WO // 2) * 2 + n // COLUMN % 2
        n = (window // (HO * WO // 4) * HO + below) * WO + beside
    y, x = n // WO % HO * S - P, n % WO * S - P
    down, right = tl.maximum(-y, 0), tl.maximum(-x, 0)
    lines = (1 << tl.maximum(tl.minimum(H - y, KH), down)) - (1 << down)
    columns = (1 << tl.maximum(tl.minimum(W - x, KW), right)) - (1 << right)
    return n // (HO * WO) * H * W + y * W + x, tl.where(n < N, lines | columns << 16, 0)


@triton.jit
def _needs(tap, KW: tl.constexpr):
    return (1 << tap // KW) | (65536 << tap % KW)


@triton.jit
def _leave(
    total, out, bias, where, m, B, OUT, PLANE: tl.constexpr,
    BIAS: tl.constexpr, CUT: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr, BO: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Bias, cut and the largest of each window, as `pooling` does, and the product into its place."""
    WINDOW: tl.constexpr = 4 if LINE else 1
    SIZE: tl.constexpr = PLANE // WINDOW
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    n = tl.program_id(0) * (BN // WINDOW) + tl.arange(0, BN // WINDOW)
    if BIAS:
        total += tl.load(bias + m * OUT + o, mask=o < OUT, other=0.0).to(tl.float32)[None, :]
    best, place = total.to(out.dtype.element_ty), tl.zeros([BN // WINDOW, BO], tl.int8)
    if LINE:
        COLUMN: tl.constexpr = 8 if LINE > 8 else 1
        windows = tl.reshape(best, [BN // (2 * LINE), 2, LINE // (2 * COLUMN), 2, COLUMN, BO])
        left, right = tl.split(tl.permute(windows, (0, 2, 4, 5, 1, 3)))
        first, third = tl.split(left)
        second, fourth = tl.split(right)
        best = tl.reshape(first, [BN // 4, BO])
        best, place = better(tl.reshape(second, [BN // 4, BO]), best, place, 1)
        best, place = better(tl.reshape(third, [BN // 4, BO]), best, place, 2)
        best, place = better(tl.reshape(fourth, [BN // 4, BO]), best, place, 3)
    if CUT:
        best, place = cut_at_zero(best, place)
    if FLAT:
        at = ((m * B + n // SIZE)[:, None] * OUT + o[None, :]) * SIZE + (n % SIZE)[:, None]
    else:
        at = (m * OUT + o[None, :]) * (B * SIZE) + n[:, None]
    there = (o < OUT)[None, :] & (n < B * SIZE)[:, None]
    tl.store(out + at, best, mask=there)
    if CUT or LINE:
        tl.store(where + at, place, mask=there)


@triton.jit
def _multiply(
    x, w, out, bias, where_largest, B, OUT,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, CUT: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    BO: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[m, o, n] = sum over taps and channels of x[m, c, n moved by the tap] w[m, tap, o, c]."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    c = tl.arange(0, BC)
    N, plane = B * HO * WO, B * H * W
    at, there = _places(n, N, H, W, HO, WO, KH, KW, S, P, LINE)
    rows_of, filters_of = x + m * C * plane, w + m * KH * KW * OUT * C
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    CHUNKS: tl.constexpr = (C + BC - 1) // BC
    total = tl.zeros([BN, BO], tl.float32)
    for step in range(KH * KW * CHUNKS):  # one loop, so that the loads of the next tap are under way
        tap, first = step // CHUNKS, step % CHUNKS * BC
        need = _needs(tap, KW)
        inside, known = ((there & need) == need)[:, None], (o < OUT)[:, None]
        if C % BC:
            some = (first + c < C)[None, :]
            inside, known = inside & some, known & some
        # In this order: one tile of places that stays would cost two registers a number, and programs beside it.
        where = (at + (tap // KW * W + tap % KW))[:, None] + ((first + c) * plane)[None, :]
        rows = tl.load(rows_of + where, mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        filters = tl.load(filters_of + (tap * OUT + o[:, None]) * C + (first + c)[None, :], mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _leave(total, out, bias, where_largest, m, B, OUT, HO * WO, BIAS, CUT, LINE, FLAT, BO, BN)


@triton.jit
def _multiply_flat(
    x, w, out, bias, where_largest, B, OUT,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BIAS: tl.constexpr, CUT: tl.constexpr, LINE: tl.constexpr, FLAT: tl.constexpr,
    BO: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same with channels and taps as one axis, w[m, o, k]: for few channels, which alone would not fill a tile."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    K: tl.constexpr = C * KH * KW
    N, plane = B * HO * WO, B * H * W
    at, there = _places(n, N, H, W, HO, WO, KH, KW, S, P, LINE)
    rows_of = x + m * C * plane
    if x.dtype.element_ty == tl.float32:
        rows_of = rows_of.to(tl.pointer_type(tl.int32), bitcast=True)
    total = tl.zeros([BN, BO], tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        tap = k % (KH * KW)
        where, need = k // (KH * KW) * plane + tap // KW * W + tap % KW, _needs(tap, KW)
        inside = ((there[:, None] & need[None, :]) == need[None, :]) & (k < K)[None, :]
        rows = tl.load(rows_of + (at[:, None] + where[None, :]), mask=inside, other=0)
        if x.dtype.element_ty == tl.float32:
            rows = rows.to(tl.float32, bitcast=True)
        known = (o < OUT)[:, None] & (k < K)[None, :]
        filters = tl.load(w + (m * OUT + o[:, None]) * K + k[None, :], mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(filters), total, input_precision=PRECISION)
    _leave(total, out, bias, where_largest, m, B, OUT, HO * WO, BIAS, CUT, LINE, FLAT, BO, BN)


@triton.jit
def _filters(
    x, g, out, B, OUT, M, LENGTH,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BO: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out[part, m, o, tap, c] = sum over the part's n of g[m, o, n] x[m, c, n moved by the tap]."""
    m, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    K: tl.constexpr = C * KH * KW
    TILES: tl.constexpr = (K + BK - 1) // BK
    N, plane = B * HO * WO, B * H * W
    k = tl.program_id(0) % TILES * BK + tl.arange(0, BK)  # channels innermost: neighbours need the same bits
    o = tl.program_id(0) // TILES * BO + tl.arange(0, BO)
    tap = k // C
    where = k % C * plane + tap // KW * W + tap % KW
    need = tl.where(k < K, _needs(tap, KW), 32768)  # a bit that no place has
    rows_of = x + m * C * plane
    total = tl.zeros([BK, BO], tl.float32)
    for first in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, N), BN):
        n = first + tl.arange(0, BN)
        at, there = _places(n, N, H, W, HO, WO, KH, KW, S, P, 0)
        inside = (there[None, :] & need[:, None]) == need[:, None]
        rows = tl.load(rows_of + (where[:, None] + at[None, :]), mask=inside, other=0.0)
        known = (o < OUT)[:, None] & (n < N)[None, :]
        back = tl.load(g + (m * OUT + o[:, None]) * N + n[None, :], mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(back), total, input_precision=PRECISION)
    place = out + ((part * M + m) * OUT + o[None, :]) * K + k[:, None]
    tl.store(place, total, mask=(o < OUT)[None, :] & (k < K)[:, None])


class After(NamedTuple):
    """What comes after a convolution; `flat` leaves the rows in memory one after another, [m, b, o, ...]."""

    bias: Tensor | None = None
    cut: bool = False
    pool: int = 1  # side of the windows, 1 or 2
    flat: bool = False


NOTHING = After()


def multiply(x: Tensor, w: Tensor, stride: int, padding: int, after: After = NOTHING) -> tuple[Tensor, Tensor]:
    """The convolution and what comes after it, and which place of a window was the largest, both as they lie."""
    (m, c, b, h, width), (o, kh, kw) = x.shape, (w.shape[1], *w.shape[3:])
    ho, wo = (h + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    out = x.new_empty(m, *((b, o) if after.flat else (o, b)), ho // after.pool, wo // after.pool)
    noted = torch.empty_like(out, dtype=torch.int8) if after.cut or after.pool > 1 else out
    by_tap, tall = c >= LEAST, _side(o)
    kernel, filters = (_multiply, w.permute(0, 3, 4, 1, 2)) if by_tap else (_multiply_flat, w)
    tile = (TAPS if by_tap else FLAT)[_kind(x)]
    depth = min(triton.next_power_of_2(c), tile.depth) if by_tap else tile.depth
    n, high, rows = b * ho * wo, triton.cdiv(o, tall), tile.rows
    while rows > NARROW and triton.cdiv(n, rows) * high * m < FULL:  # few clients: smaller tiles for more programs
        rows //= 2
    line = 0 if after.pool == 1 else min(LINES[_kind(x)], rows // 2)
    kernel[(triton.cdiv(n, rows), high, m)](
        x, filters.contiguous(), out, out if after.bias is None else after.bias.contiguous(), noted, b, o,
        c, h, width, ho, wo, kh, kw, stride, padding, _precision(),
        after.bias is not None, after.cut, line, after.flat,
        tall, rows, depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out, noted


def filters(x: Tensor, g: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """Gradient of the filters, added up in parts of the rows so that the whole device has work."""
    (m, c, b, h, width), (o, ho, wo) = x.shape, (g.shape[1], *g.shape[3:])
    k, n, tall = c * kernel[0] * kernel[1], b * ho * wo, _side(o)
    tile = FILTERS[_kind(x)]
    wide = max(min(triton.next_power_of_2(k), tile.rows), NARROW)
    tiles = triton.cdiv(k, wide) * triton.cdiv(o, tall)
    parts = max(min(PARTS // (tiles * m), triton.cdiv(n, 8 * tile.depth)), 1)
    length = triton.cdiv(triton.cdiv(n, parts), tile.depth) * tile.depth
    parts = triton.cdiv(n, length)
    out = torch.empty(parts, m, o, k // c, c, device=x.device)
    _filters[(tiles, parts, m)](
        x, g, out, b, o, m, length, c, h, width, ho, wo, *kernel, stride, padding, _precision(),
        tall, wide, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    # Into memory that lies as the weights do: an optimiser takes its tensors one by one otherwise.
    total = torch.sum(out.transpose(3, 4), 0, out=torch.empty(m, o, c, k // c, device=x.device))
    return total.to(x.dtype).view(m, o, c, *kernel)


def _side(o: int) -> int:
    return max(min(triton.next_power_of_2(o), 64), LEAST)


def _kind(x: Tensor) -> str:
    return _precision() if x.dtype == torch.float32 else "half"


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
