"""Normalisation of a cohort: x [r, n] holds every channel of every client as one row, which is read from cache."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048  # numbers at once


@triton.jit
def _forward(x, gain, shift, out, means, variances, N, EPS, BN: tl.constexpr):
    """Mean, then the variance about it, then the row: two passes keep what one pass of squares would lose."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BN)
    total = tl.zeros([BN], tl.float32)
    for first in range(0, N, BN):
        total += tl.load(x + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / N
    total = tl.zeros([BN], tl.float32)
    for first in range(0, N, BN):
        seen = tl.load(x + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        away = tl.where(first + at < N, seen - mean, 0.0)
        total += away * away
    variance = tl.sum(total, 0) / N
    scale = tl.load(gain + row).to(tl.float32) / tl.sqrt(variance + EPS)
    offset = tl.load(shift + row).to(tl.float32)
    for first in range(0, N, BN):
        seen = tl.load(x + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        tl.store(
            out + row * N + first + at, ((seen - mean) * scale + offset).to(out.dtype.element_ty), mask=first + at < N
        )
    tl.store(means + row, mean)
    tl.store(variances + row, variance)


@triton.jit
def _backward(x, g, gain, means, variances, out, into_gain, into_shift, N, EPS, BN: tl.constexpr):
    """dx = gain / s (g - mean(g) - z mean(g z)) with z = (x - mean) / s."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BN)
    mean = tl.load(means + row)
    inverse = 1.0 / tl.sqrt(tl.load(variances + row) + EPS)
    sums, products = tl.zeros([BN], tl.float32), tl.zeros([BN], tl.float32)
    for first in range(0, N, BN):
        back = tl.load(g + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        seen = tl.load(x + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        sums += back
        products += back * (seen - mean) * inverse
    total, product = tl.sum(sums, 0), tl.sum(products, 0)
    scale = tl.load(gain + row).to(tl.float32) * inverse
    for first in range(0, N, BN):
        back = tl.load(g + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        seen = tl.load(x + row * N + first + at, mask=first + at < N, other=0.0).to(tl.float32)
        new = scale * (back - total / N - (seen - mean) * inverse * product / N)
        tl.store(out + row * N + first + at, new.to(out.dtype.element_ty), mask=first + at < N)
    tl.store(into_gain + row, product)
    tl.store(into_shift + row, total)


class Normalise(torch.autograd.Function):
    """The rows, their means and variances (not differentiated: they only feed running statistics)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
        x, gain, shift = x.contiguous(), gain.contiguous(), shift.contiguous()
        r, n = x.shape
        out = torch.empty_like(x)
        means, variances = torch.empty(2, r, device=x.device)
        _forward[(r,)](x, gain, shift, out, means, variances, n, eps, BLOCK)
        ctx.save_for_backward(x, gain, means, variances)
        ctx.eps = eps
        ctx.mark_non_differentiable(means, variances)
        return out, means, variances

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, means, variances = ctx.saved_tensors
        g, out = g.contiguous(), torch.empty_like(x)
        into_gain, into_shift = torch.empty(2, len(x), device=x.device)
        _backward[(len(x),)](x, g, gain, means, variances, out, into_gain, into_shift, x.shape[1], ctx.eps, BLOCK)
        return out, into_gain.to(gain.dtype), into_shift.to(gain.dtype), None
