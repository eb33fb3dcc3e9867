"""Depthwise 3x3 filters on the matrix units: planes x [r, b, h, w], one row for every channel of every client.

A row of planes is cut into lines of L numbers, L a multiple of the width. What a line gives to itself, to the one above
and to the one below is then a product with an [L, L] matrix that holds the nine taps in bands, so that memory is read in
whole lines where a filter tap by tap makes nine masked reads of single numbers.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LINE = 16  # least numbers of a line: what the matrix units take
LINES = 64  # lines of a tile


@triton.jit
def _tap(j: tl.constexpr, L: tl.constexpr, W: tl.constexpr):
    """[L, L]: the tap through which the line here sees number p (rows) of the j-th line from it at its number q."""
    p, q = tl.arange(0, L)[:, None] + (j + 1) * L, tl.arange(0, L)[None, :] + L
    dy, dx = p // W - q // W + 1, p % W - q % W + 1
    return tl.where((dy >= 0) & (dy < 3) & (dx >= 0) & (dx < 3), dy * 3 + dx, -1)


@triton.jit
def _band(w, tap, TURNED: tl.constexpr):
    """The filter's taps in their places; turned, as gradients go back through it."""
    at = 8 - tap if TURNED else tap
    return tl.load(w + at, mask=tap >= 0, other=0.0)


@triton.jit
def _line(x, line, T, PLANE: tl.constexpr, j: tl.constexpr, L: tl.constexpr):
    """The j-th line from each line, zero where that belongs to another plane."""
    inside = (line < T) & (line % PLANE + j >= 0) & (line % PLANE + j < PLANE)
    return tl.load(x + (line + j)[:, None] * L + tl.arange(0, L)[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def _filter(x, w, out, T, W: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr, BM: tl.constexpr):
    """T lines of a row, PLANE of them a plane."""
    row = tl.program_id(0).to(tl.int64)
    x, out, w = x + row * T * L, out + row * T * L, w + row * 9
    here = _band(w, _tap(0, L, W), False)
    above, below = _band(w, _tap(-1, L, W), False), _band(w, _tap(1, L, W), False)
    for first in range(0, T, BM):
        line = first + tl.arange(0, BM)
        total = tl.dot(_line(x, line, T, PLANE, 0, L), here, input_precision="tf32")
        if PLANE > 1:
            total = tl.dot(_line(x, line, T, PLANE, -1, L), above, total, input_precision="tf32")
            total = tl.dot(_line(x, line, T, PLANE, 1, L), below, total, input_precision="tf32")
        place = out + line[:, None] * L + tl.arange(0, L)[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(line < T)[:, None])


@triton.jit
def _back(x, g, w, out, into_filters, T, W: tl.constexpr, PLANE: tl.constexpr, L: tl.constexpr, BM: tl.constexpr):
    """Both gradients: turned bands for the rows; for the taps, products of lines whose bands are then added up."""
    row = tl.program_id(0).to(tl.int64)
    x, g, out, w = x + row * T * L, g + row * T * L, out + row * T * L, w + row * 9
    at_here, at_above, at_below = _tap(0, L, W), _tap(-1, L, W), _tap(1, L, W)
    here, above, below = _band(w, at_here, True), _band(w, at_above, True), _band(w, at_below, True)
    c_here, c_above, c_below = tl.zeros([L, L], tl.float32), tl.zeros([L, L], tl.float32), tl.zeros([L, L], tl.float32)
    for first in range(0, T, BM):
        line = first + tl.arange(0, BM)
        mine = tl.trans(_line(x, line, T, PLANE, 0, L))
        back = _line(g, line, T, PLANE, 0, L)
        total = tl.dot(back, here, input_precision="tf32")
        c_here = tl.dot(mine, back, c_here, input_precision="tf32")
        if PLANE > 1:
            back = _line(g, line, T, PLANE, -1, L)
            total = tl.dot(back, above, total, input_precision="tf32")
            c_above = tl.dot(mine, back, c_above, input_precision="tf32")
            back = _line(g, line, T, PLANE, 1, L)
            total = tl.dot(back, below, total, input_precision="tf32")
            c_below = tl.dot(mine, back, c_below, input_precision="tf32")
        place = out + line[:, None] * L + tl.arange(0, L)[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(line < T)[:, None])
    for tap in tl.static_range(9):
        # c[p, q]: number p here times gradient q of line j; seen from there, this line is -j away.
        found = tl.where(tl.trans(at_here) == 8 - tap, c_here, 0.0)
        if PLANE > 1:
            found += tl.where(tl.trans(at_above) == 8 - tap, c_above, 0.0)
            found += tl.where(tl.trans(at_below) == 8 - tap, c_below, 0.0)
        tl.store(into_filters + row * 9 + tap, tl.sum(tl.sum(found, 1), 0).to(into_filters.dtype.element_ty))


class Bands(torch.autograd.Function):
    """Every row its own filter w [r, 3, 3], stride and padding 1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        ctx.save_for_backward(x, w)
        out = torch.empty_like(x)
        _filter[(len(x),)](x, w, out, *_shape(x), num_warps=4)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        into_rows, into_filters = torch.empty_like(x), torch.empty_like(w)
        _back[(len(x),)](x, g.contiguous(), w, into_rows, into_filters, *_shape(x), num_warps=4)
        return into_rows, into_filters


def _shape(x: Tensor) -> tuple[int, int, int, int, int]:
    """Lines of a row, width, lines of a plane, numbers of a line, lines at once."""
    _, b, h, w = x.shape
    length = max(w, LINE)
    lines = b * h * w // length
    return lines, w, h * w // length, length, max(min(LINES, triton.next_power_of_2(lines)), 16)
