"""What the convolution's kernels share: where a place's taps read, lines of places in pairs, and tiles.

A place is one of b h' w' outputs of a channel, a tap one of kh kw. What a program does for every number it gathers is
what it costs, so a place knows once which taps hit its row (two masks of bits), and a tap which bits it needs.

A row of a product may stand for two places, one below the other: filters of kh + 1 lines, once with a line of zeros at
the end and once at the start, give both. For a 5 x 5 filter that is 6 / 5 of the multiplications and 3 / 5 of the
numbers to gather, which the products wait for. An infinite number of the line beside becomes NaN by the zeros: such
activations end in a message that is refused, a line earlier than by PyTorch's convolution.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from unskew.engines.stacked.kernels import has_tf32

LEAST = 16  # smallest side that the matrix units take
WIDE, PAIRED = 64, 64  # most columns of a tile, and of one of pairs
FULL = 264  # programs wanted at least: two a multiprocessor
COLUMN = tl.constexpr(8)  # rows of a product between two that a thread has: the two columns of a window


class TileShape(NamedTuple):
    """Places of a tile, or taps and channels of a gradient's; how deep it goes at once; its warps and loads ahead."""

    rows: int
    depth: int
    warps: int
    stages: int


@triton.jit
def places(
    n, B,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PAIR: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """Where the first tap of row n reads, and the taps within the image: bit i for line i, bit 16 + j for column j.

    Row n is place n, or for PAIR = 2 the upper one of a pair. With a LINE, rows in the order of 2 x 2 windows: the bit
    COLUMN of n is the column within one, the bit LINE the line where the row does not stand for both, and the others
    count the windows.
    """
    if LINE:
        if PAIR == 2:
            window, below = n // (2 * COLUMN) * COLUMN + n % COLUMN, 0
        else:
            window = n // (2 * LINE) * (LINE // 2) + n % LINE // (2 * COLUMN) * COLUMN + n % COLUMN
            below = n // LINE % 2
        image, line = window // (HO * WO // 4), window // (WO // 2) % (HO // 2) * 2 + below
        column = window % (WO // 2) * 2 + n // COLUMN % 2
    else:  # every number for itself, not by way of the place: this is within the loop of a gradient
        image, line, column = n // (HO * WO // PAIR), n // WO % (HO // PAIR) * PAIR, n % WO
    y, x = line * S - P, column * S - P
    down, right = tl.maximum(-y, 0), tl.maximum(-x, 0)
    lines = (1 << tl.maximum(tl.minimum(H - y, KH), down)) - (1 << down)
    columns = (1 << tl.maximum(tl.minimum(W - x, KW), right)) - (1 << right)
    return image * (H * W) + y * W + x, tl.where(image < B, lines | columns << 16, 0)


@triton.jit
def needs(tap, KW: tl.constexpr):
    return (1 << tap // KW) | (65536 << tap % KW)


def pairs(o: int, high: int, lines: int, stride: int) -> int:
    """How many places a row of a product stands for, with o outputs of `high` lines by filters of `lines`.

    For filters of three lines a fourth costs what it saves. On an H200 pairs took 350 us in place of 488 forward and
    1218 in place of 1485 back into rows for the cnn's layers, with 100 clients and 50 rows.
    """
    return 2 if stride == 1 and high % 2 == 0 and 2 * side(o) <= PAIRED and lines > 3 else 1


def side(o: int) -> int:
    return max(min(triton.next_power_of_2(o), WIDE), LEAST)


def kind(x: Tensor) -> str:
    """Of the tiles that suit a tensor's products."""
    return "half" if x.dtype != torch.float32 else "tf32" if precision() == "tf32" else "tf32x3"


def precision() -> str:
    """How the matrix units multiply numbers of float32: cut to TF32, or as a sum of two such numbers each.

    Three products of four, the fourth being below the rounding of a sum: what float32 is on units that do not know it.
    """
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "tf32x3" if has_tf32() else "ieee"
