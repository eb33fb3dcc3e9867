"""The gradient of a cohort's filters as one implicit matrix product: taps by output channels, summed over positions."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels.conv_index import (
    TileShape,
    output_positions,
    outputs_per_row,
    precision,
    tap_bits,
    tile_columns,
    tile_kind,
)

PROGRAMS = 512  # to aim for
MIN_ROWS = 64  # of a tile
# `python benchmarks/speed/tiles.py` times other tiles.
FILTERS = {"half": TileShape(128, 64, 8, 2), "tf32": TileShape(128, 32, 4, 4), "tf32x3": TileShape(128, 32, 4, 3)}


@triton.jit
def _filter_grad(
    x, g, out, B, OUT, COLUMNS, M, LENGTH,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    PAIR: tl.constexpr, BO: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out[part, m, o, tap, c] = sum over the part's n of g[m, o, n] x[m, c, n shifted by the tap]."""
    m, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    K: tl.constexpr = C * KH * KW
    TILES: tl.constexpr = (K + BK - 1) // BK
    N, plane = B * HO * WO // PAIR, B * H * W
    k = tl.program_id(0) % TILES * BK + tl.arange(0, BK)  # channels innermost, so that neighbours test the same bits
    column = tl.program_id(0) // TILES * BO + tl.arange(0, BO)
    tap = k // C
    offset = k % C * plane + tap // KW * W + tap % KW
    needed = tl.where(k < K, tap_bits(tap, KW), -1)  # beyond K: bits that no position has all of
    rows_of = x + m * C * plane
    if PAIR == 2:  # the gradients of the upper outputs, then those of the lower ones
        o = column % (BO // 2)
        grad_of = (m * OUT + o) * (B * HO * WO) + column // (BO // 2) * WO
    else:
        o = column
        grad_of = (m * OUT + o) * (B * HO * WO)
    total = tl.zeros([BK, BO], tl.float32)
    for first in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, N), BN):
        n = first + tl.arange(0, BN)
        at, valid = output_positions(n, B, H, W, HO, WO, KH, KW, S, P, PAIR, 0)
        inside = (valid[None, :] & needed[:, None]) == needed[:, None]
        rows = tl.load(rows_of + (offset[:, None] + at[None, :]), mask=inside, other=0.0)
        in_grad = (o < OUT)[:, None] & (n < N)[None, :]
        position = n // WO * (2 * WO) + n % WO if PAIR == 2 else n
        grad = tl.load(g + (grad_of[:, None] + position[None, :]), mask=in_grad, other=0.0)
        total = tl.dot(rows, tl.trans(grad), total, input_precision=PRECISION)
    destination = out + ((part * M + m) * COLUMNS + column[None, :]) * K + k[:, None]
    tl.store(destination, total, mask=(column < COLUMNS)[None, :] & (k < K)[:, None])


def filter_grad(x: Tensor, g: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """Gradient of the filters; the sum is split into parts so that the whole device has work."""
    (m, c, b, h, width), (o, ho, wo), (kh, kw) = x.shape, (g.shape[1], *g.shape[3:]), kernel
    pair = outputs_per_row(o, ho, kh, stride)
    k, n, tile_width = c * (kh + pair - 1) * kw, b * ho * wo // pair, pair * tile_columns(o)
    columns, tile = o if pair == 1 else tile_width, FILTERS[tile_kind(x)]
    tile_rows = max(min(triton.next_power_of_2(k), tile.rows), MIN_ROWS)
    tiles = triton.cdiv(k, tile_rows) * triton.cdiv(columns, tile_width)
    parts = max(min(PROGRAMS // (tiles * m), triton.cdiv(n, 8 * tile.depth)), 1)
    length = triton.cdiv(triton.cdiv(n, parts), tile.depth) * tile.depth
    parts = triton.cdiv(n, length)
    out = torch.empty(parts, m, columns, k, device=x.device)
    _filter_grad[(tiles, parts, m)](
        x, g, out, b, o, columns, m, length, c, h, width, ho, wo, kh + pair - 1, kw, stride, padding, precision(),
        pair, tile_width, tile_rows, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    # The first line of a pair's lower filter is aligned with the second line of its upper one. The result is contiguous
    # like the weights, because PyTorch's optimisers otherwise update their tensors one by one.
    part_stride, pair_stride = m * columns * k, (columns // pair) * k + kw * c
    parts_view = out.as_strided((parts, pair, m, o, c, kh * kw), (part_stride, pair_stride, columns * k, k, 1, c))
    total = torch.sum(parts_view, (0, 1), out=torch.empty(m, o, c, kh * kw, device=x.device))
    return total.to(x.dtype).view(m, o, c, kh, kw)
