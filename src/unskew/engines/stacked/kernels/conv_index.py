"""Indexing shared by the convolution kernels: the input position of each output, pairs of outputs, and tile sizes.

A position is one of the b h' w' outputs of a channel, a tap one of the kh kw elements of a filter. The work for every
number gathered dominates the cost, so the taps that lie inside the image are computed once for each position (a mask
of bits), and each tap only tests its own bits.

A row of the matrix product may compute two outputs, one below the other: filters are extended to kh + 1 lines, once
with a line of zeros at the end and once at the start. For a 5 x 5 filter that is 6 / 5 of the multiplications but only
3 / 5 of the numbers to gather, which are the bottleneck. An infinite number in the additional line becomes NaN when
multiplied by zero: such activations end in a refused message, one line earlier than with PyTorch's convolution.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels import has_tf32

MIN_SIDE = 16  # smallest side of a matrix that the tensor cores support
MAX_COLUMNS, MAX_PAIR_COLUMNS = 64, 64  # of a tile of single outputs, and of pairs
MIN_PROGRAMS = 264  # two for each multiprocessor of an H200
# The tensor cores give a thread rows of the product that are 8 apart: these become the two columns of a pooling window.
COLUMN = tl.constexpr(8)


class TileShape(NamedTuple):
    """Rows of a tile (positions, or a filter gradient's taps and channels), depth, warps, and pipeline stages."""

    rows: int
    depth: int
    warps: int
    stages: int


@triton.jit
def output_positions(
    n, B,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """Input offset of the first tap of row n, and its taps inside the image: bit i for line i, bit 16 + j for column j.

    Row n is output n, or for PAIR = 2 the upper output of a pair. With a LINE, rows are in the order of 2 x 2 pooling
    windows: bit COLUMN of n is the column within a window, bit LINE its line (unless the row computes both), and the
    other bits count the windows.
    """
    if LINE:
        if PAIR == 2:
            window, below = n // (2 * COLUMN) * COLUMN + n % COLUMN, 0
        else:
            window = n // (2 * LINE) * (LINE // 2) + n % LINE // (2 * COLUMN) * COLUMN + n % COLUMN
            below = n // LINE % 2
        image, line = window // (HO * WO // 4), window // (WO // 2) % (HO // 2) * 2 + below
        column = window % (WO // 2) * 2 + n // COLUMN % 2
    else:  # each directly from n, which is cheaper: the filter gradient calls this inside its loop
        image, line, column = n // (HO * WO // PAIR), n // WO % (HO // PAIR) * PAIR, n % WO
    y, x = line * S - P, column * S - P
    down, right = tl.maximum(-y, 0), tl.maximum(-x, 0)
    lines = (1 << tl.maximum(tl.minimum(H - y, KH), down)) - (1 << down)
    columns = (1 << tl.maximum(tl.minimum(W - x, KW), right)) - (1 << right)
    return image * (H * W) + y * W + x, tl.where(image < B, lines | columns << 16, 0)


@triton.jit
def tap_bits(tap, KW: tl.constexpr):
    return (1 << tap // KW) | (65536 << tap % KW)


def outputs_per_row(o: int, height: int, lines: int, stride: int) -> int:
    """Outputs that one row of the product computes, 1 or 2, for o channels of this height and filters of `lines`.

    For filters of three lines, a fourth costs as much as it saves. On an H200, pairs took 350 instead of 488 us forward
    and 1218 instead of 1485 us for the input gradient of the cnn's layers, with 100 clients and 50 rows.
    """
    return 2 if stride == 1 and height % 2 == 0 and 2 * tile_columns(o) <= MAX_PAIR_COLUMNS and lines > 3 else 1


def tile_columns(o: int) -> int:
    return max(min(triton.next_power_of_2(o), MAX_COLUMNS), MIN_SIDE)


def tile_kind(x: Tensor) -> str:
    """Key of the tile tables for a tensor's precision."""
    return "half" if x.dtype != torch.float32 else "tf32" if precision() == "tf32" else "tf32x3"


def precision() -> str:
    """How the tensor cores multiply float32: rounded to TF32, or (tf32x3) with each number as a sum of two TF32.

    tf32x3 computes three of the four partial products, the fourth being below the rounding of float32 sums. Where
    TF32 is not supported, ieee means ordinary float32.
    """
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3" if has_tf32() else "ieee"
