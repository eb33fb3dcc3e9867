"""Depthwise 3x3 filters on the matrix units: planes x [r, b, h, w], one row for every channel of every client.

A row of planes is cut into lines of L numbers, L a multiple of the width. What a line gives to itself, to the one above
and to the one below is a product with an [L, L] matrix that holds the nine taps in bands. Memory is then read in whole
lines, where tap by tap makes nine masked reads of single numbers (1.13 to 0.52 ms for 944 MB on an H200). Backward the
products that the taps' gradient asks for cost what the reads save. A number that is not finite spoils its lines whole.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST, MOST = 16, 64  # numbers of a line: what the matrix units take, and what a program's three bands may hold
LINES = 64  # of a tile


@triton.jit
def _band(w, j: tl.constexpr, L: tl.constexpr, W: tl.constexpr):
    """[L, L]: the tap through which number q (columns) of a line sees number p of the j-th line from it."""
    p, q = tl.arange(0, L)[:, None] + (j + 1) * L, tl.arange(0, L)[None, :] + L
    dy, dx = p // W - q // W + 1, p % W - q % W + 1
    return tl.load(w + dy * 3 + dx, mask=(dy >= 0) & (dy < 3) & (dx >= 0) & (dx < 3), other=0.0)


@triton.jit
def _line(x, line, T, j: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr):
    """The j-th line from each line, zero where that belongs to another plane."""
    inside = (line < T) & (line % PLANE + j >= 0) & (line % PLANE + j < PLANE)
    return tl.load(x + (line + j)[:, None] * L + tl.arange(0, L)[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _banded(x, w, out, T, W: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr, BM: tl.constexpr):
    """T lines of a row, PLANE of them a plane."""
    row = tl.program_id(0).to(tl.int64)
    x, out, w = x + row * T * L, out + row * T * L, w + row * 9
    here, above, below = _band(w, 0, L, W), _band(w, -1, L, W), _band(w, 1, L, W)
    for first in range(0, T, BM):
        line = first + tl.arange(0, BM)
        total = tl.dot(_line(x, line, T, 0, PLANE, L), here, input_precision="tf32")
        if PLANE > 1:
            total = tl.dot(_line(x, line, T, -1, PLANE, L), above, total, input_precision="tf32")
            total = tl.dot(_line(x, line, T, 1, PLANE, L), below, total, input_precision="tf32")
        place = out + line[:, None] * L + tl.arange(0, L)[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(line < T)[:, None])


def fit(x: Tensor, w: Tensor, stride: int, padding: int) -> bool:
    """Whether these planes and filters can be done so, and as exactly as the run's precision asks for."""
    high, wide = x.shape[2:]
    exact = x.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    whole = wide & (wide - 1) == 0 and wide <= MOST and high * wide % max(wide, LEAST) == 0
    return not exact and whole and (w.shape[1:], stride, padding) == ((3, 3), 1, 1)


def filtered(x: Tensor, w: Tensor) -> Tensor:
    """Every row with its own filter w [r, 3, 3], stride and padding 1."""
    r, b, high, wide = x.shape
    length = max(wide, LEAST)
    lines, out = b * high * wide // length, torch.empty_like(x)
    tall = min(LINES, max(triton.next_power_of_2(lines), LEAST))
    _banded[(r,)](x, w, out, lines, wide, high * wide // length, length, tall, num_warps=2, num_stages=2)
    return out
