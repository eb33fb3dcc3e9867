"""The gradient of a cohort's filters as one implicit matrix product: taps by outputs, summed over places."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import TileShape, kind, needs, pairs, places, precision, side

PARTS = 512  # programs wanted
NARROW = 64  # rows of the smallest tile
# Half precision, TF32 and float32; `python benchmarks/speed/tiles.py` times others.
FILTERS = {"half": TileShape(128, 64, 8, 2), "tf32": TileShape(128, 32, 4, 4), "tf32x3": TileShape(128, 32, 4, 3)}


@triton.jit
def _filters(
    x, g, out, B, OUT, COLUMNS, M, LENGTH,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    PAIR: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out[part, m, o, tap, c] = sum over the part's n of g[m, o, n] x[m, c, n moved by the tap]."""
    m, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    K: tl.constexpr = C * KH * KW
    TILES: tl.constexpr = (K + BK - 1) // BK
    N, plane = B * HO * WO // PAIR, B * H * W
    k = tl.program_id(0) % TILES * BK + tl.arange(0, BK)  # channels innermost: neighbours need the same bits
    column = tl.program_id(0) // TILES * BO + tl.arange(0, BO)
    tap = k // C
    where = k % C * plane + tap // KW * W + tap % KW
    need = tl.where(k < K, needs(tap, KW), -1)  # bits that no place has all of
    rows_of = x + m * C * plane
    if PAIR == 2:  # the gradients of the upper places, then those of the lower ones
        o = column % (BO // 2)
        back_of = (m * OUT + o) * (B * HO * WO) + column // (BO // 2) * WO
    else:
        o = column
        back_of = (m * OUT + o) * (B * HO * WO)
    total = tl.zeros([BK, BO], tl.float32)
    for first in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, N), BN):
        n = first + tl.arange(0, BN)
        at, there = places(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, 0)
        inside = (there[None, :] & need[:, None]) == need[:, None]
        rows = tl.load(rows_of + (where[:, None] + at[None, :]), mask=inside, other=0.0)
        known = (o < OUT)[:, None] & (n < N)[None, :]
        place = n // WO * (2 * WO) + n % WO if PAIR == 2 else n
        back = tl.load(g + (back_of[:, None] + place[None, :]), mask=known, other=0.0)
        total = tl.dot(rows, tl.trans(back), total, input_precision=PRECISION)
    place = out + ((part * M + m) * COLUMNS + column[None, :]) * K + k[:, None]
    tl.store(place, total, mask=(column < COLUMNS)[None, :] & (k < K)[:, None])


def filters(x: Tensor, g: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """Gradient of the filters, added up in parts of the rows so that the whole device has work."""
    (m, c, b, h, width), (o, ho, wo), (kh, kw) = x.shape, (g.shape[1], *g.shape[3:]), kernel
    pair = pairs(o, ho, kh, stride)
    k, n, tall = c * (kh + pair - 1) * kw, b * ho * wo // pair, pair * side(o)
    columns, tile = o if pair == 1 else tall, FILTERS[kind(x)]
    wide = max(min(triton.next_power_of_2(k), tile.rows), NARROW)
    tiles = triton.cdiv(k, wide) * triton.cdiv(columns, tall)
    parts = max(min(PARTS // (tiles * m), triton.cdiv(n, 8 * tile.depth)), 1)
    length = triton.cdiv(triton.cdiv(n, parts), tile.depth) * tile.depth
    parts = triton.cdiv(n, length)
    out = torch.empty(parts, m, columns, k, device=x.device)
    _filters[(tiles, parts, m)](
        x, g, out, b, o, columns, m, length, c, h, width, ho, wo, kh + pair - 1, kw, stride, padding, precision(),
        pair, tall, wide, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    # A pair's lower place has its first line where the upper one has its second. Into memory that lies as the weights
    # do: an optimiser takes its tensors one by one otherwise.
    all_of, lower = m * columns * k, (columns // pair) * k + kw * c
    each = out.as_strided((parts, pair, m, o, c, kh * kw), (all_of, lower, columns * k, k, 1, c))
    total = torch.sum(each, (0, 1), out=torch.empty(m, o, c, kh * kw, device=x.device))
    return total.to(x.dtype).view(m, o, c, kh, kw)
