"""Depthwise 3x3 convolution on the tensor cores: planes x [r, b, h, w], one row for each channel of each client.

A row of planes is divided into lines of L numbers, L a multiple of the width. The contribution of a line to itself, to
the line above and to the line below is a product with an [L, L] banded matrix of the nine taps. Memory is then read in
complete lines, where the direct kernel makes nine masked reads of single numbers (1.13 to 0.52 ms for 944 MB on an
H200). In the backward pass the products for the filter gradient would cost what the reads save. A non-finite number
makes its complete lines non-finite.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers of a line: at least what the tensor cores support, and few enough for a program to hold the three matrices.
MIN_LINE, MAX_LINE = 16, 64
LINES = 64  # of a tile


@triton.jit
def _band(w, j: tl.constexpr, L: tl.constexpr, W: tl.constexpr):
    """[L, L]: the tap that multiplies number p of the j-th next line in the sum of number q (columns) of a line."""
    p, q = tl.arange(0, L)[:, None] + (j + 1) * L, tl.arange(0, L)[None, :] + L
    dy, dx = p // W - q // W + 1, p % W - q % W + 1
    return tl.load(w + dy * 3 + dx, mask=(dy >= 0) & (dy < 3) & (dx >= 0) & (dx < 3), other=0.0)


@triton.jit
def _line(x, line, T, j: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr):
    """The j-th next line of each line, zero if it belongs to another plane."""
    inside = (line < T) & (line % PLANE + j >= 0) & (line % PLANE + j < PLANE)
    return tl.load(x + (line + j)[:, None] * L + tl.arange(0, L)[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _banded(x, w, out, T, W: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr, BM: tl.constexpr):
    """One row of T lines; PLANE lines are a plane."""
    row = tl.program_id(0).to(tl.int64)
    x, out, w = x + row * T * L, out + row * T * L, w + row * 9
    same_line, above, below = _band(w, 0, L, W), _band(w, -1, L, W), _band(w, 1, L, W)
    for first in range(0, T, BM):
        line = first + tl.arange(0, BM)
        total = tl.dot(_line(x, line, T, 0, PLANE, L), same_line, input_precision="tf32")
        if PLANE > 1:
            total = tl.dot(_line(x, line, T, -1, PLANE, L), above, total, input_precision="tf32")
            total = tl.dot(_line(x, line, T, 1, PLANE, L), below, total, input_precision="tf32")
        destination = out + line[:, None] * L + tl.arange(0, L)[None, :]
        tl.store(destination, total.to(out.dtype.element_ty), mask=(line < T)[:, None])


def supports(x: Tensor, w: Tensor, stride: int, padding: int) -> bool:
    """Whether this kernel supports these planes and filters, and is as exact as the run's precision requires."""
    height, width = x.shape[2:]
    exact = x.dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    divides = width & (width - 1) == 0 and width <= MAX_LINE and height * width % max(width, MIN_LINE) == 0
    return not exact and divides and (w.shape[1:], stride, padding) == ((3, 3), 1, 1)


def depthwise_3x3(x: Tensor, w: Tensor) -> Tensor:
    """Depthwise convolution with a filter w [r, 3, 3] for each row, stride and padding 1."""
    r, b, height, width = x.shape
    length = max(width, MIN_LINE)
    lines, out = b * height * width // length, torch.empty_like(x)
    tile_lines = min(LINES, max(triton.next_power_of_2(lines), MIN_LINE))
    _banded[(r,)](x, w, out, lines, width, height * width // length, length, tile_lines, num_warps=2, num_stages=2)
    return out
