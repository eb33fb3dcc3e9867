"""Functions of planes x [r, b, h, w], one row for every channel of every client: depthwise filters, and pooling."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # numbers of a program
CHUNK = 256  # the same where all taps of a filter are held at once


@triton.jit
def _filter(
    x, w, out, B, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    b, y0, x0 = n // (HO * WO), n // WO % HO * S - P, n % WO * S - P
    total = tl.zeros([BN], tl.float32)
    for tap in tl.static_range(KH * KW):
        yi, xi = y0 + tap // KW, x0 + tap % KW
        inside = (b < B) & (yi >= 0) & (yi < H) & (xi >= 0) & (xi < W)
        seen = tl.load(x + row * B * H * W + (b * H + yi) * W + xi, mask=inside, other=0.0)
        total += seen.to(tl.float32) * tl.load(w + row * KH * KW + tap).to(tl.float32)
    tl.store(out + row * B * HO * WO + n, total.to(out.dtype.element_ty), mask=b < B)


@triton.jit
def _spread(
    g, w, out, B, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Each input collects from the outputs that saw it."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    b, y0, x0 = n // (H * W), n // W % H + P, n % W + P
    total = tl.zeros([BN], tl.float32)
    for tap in tl.static_range(KH * KW):
        dy, dx = y0 - tap // KW, x0 - tap % KW
        yo, xo = dy // S, dx // S
        inside = (b < B) & (dy >= 0) & (dx >= 0) & (yo * S == dy) & (xo * S == dx) & (yo < HO) & (xo < WO)
        seen = tl.load(g + row * B * HO * WO + (b * HO + yo) * WO + xo, mask=inside, other=0.0)
        total += seen.to(tl.float32) * tl.load(w + row * KH * KW + tap).to(tl.float32)
    tl.store(out + row * B * H * W + n, total.to(out.dtype.element_ty), mask=b < B)


@triton.jit
def _taps(
    x, g, out, B, H, W, HO, WO,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, TAPS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out[row, tap] = sum of the gradients times what the tap saw."""
    row = tl.program_id(0).to(tl.int64)
    tap = tl.arange(0, TAPS)
    total = tl.zeros([TAPS, BN], tl.float32)
    for first in range(0, B * HO * WO, BN):
        n = first + tl.arange(0, BN)
        b = n // (HO * WO)
        yi, xi = (n // WO % HO * S - P)[None, :] + (tap // KW)[:, None], (n % WO * S - P)[None, :] + (tap % KW)[:, None]
        inside = (tap < KH * KW)[:, None] & (b < B)[None, :] & (yi >= 0) & (yi < H) & (xi >= 0) & (xi < W)
        seen = tl.load(x + row * B * H * W + (b[None, :] * H + yi) * W + xi, mask=inside, other=0.0)
        back = tl.load(g + row * B * HO * WO + n, mask=b < B, other=0.0)
        total += seen.to(tl.float32) * back.to(tl.float32)[None, :]
    tl.store(out + row * KH * KW + tap, tl.sum(total, 1).to(out.dtype.element_ty), mask=tap < KH * KW)


@triton.jit
def _largest(x, out, where, N, H, W, HO, WO, K: tl.constexpr, BN: tl.constexpr):
    """The largest of each K x K window and which one it was; the first of equals, and NaN before all."""
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    at = x + (n // (HO * WO)) * H * W + (n // WO % HO) * K * W + n % WO * K
    best, place = tl.load(at, mask=n < N, other=0.0), tl.zeros([BN], tl.int8)
    for tap in tl.static_range(1, K * K):
        seen = tl.load(at + (tap // K) * W + tap % K, mask=n < N, other=0.0)
        better = (seen > best) | ((seen != seen) & (best == best))
        best, place = tl.where(better, seen, best), tl.where(better, tap, place).to(tl.int8)
    tl.store(out + n, best, mask=n < N)
    tl.store(where + n, place, mask=n < N)


@triton.jit
def _to_largest(g, where, out, N, H, W, HO, WO, K: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    y, x = n // W % H, n % W
    inside = (n < N) & (y // K < HO) & (x // K < WO)
    at = n // (H * W) * HO * WO + y // K * WO + x // K
    mine = tl.load(where + at, mask=inside, other=-1) == y % K * K + x % K
    tl.store(out + n, tl.where(mine, tl.load(g + at, mask=inside, other=0.0), 0.0), mask=n < N)


class Depthwise(torch.autograd.Function):
    """Every row its own filter w [r, kh, kw]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        ctx.save_for_backward(x, w)
        (r, b, *sides), kernel = x.shape, w.shape[1:]
        ctx.stride, ctx.padding = stride, padding
        out = x.new_empty(r, b, *((side + 2 * padding - k) // stride + 1 for side, k in zip(sides, kernel)))
        grid = (r, triton.cdiv(out[0].numel(), BLOCK))
        _filter[grid](x, w, out, b, *sides, *out.shape[2:], *kernel, stride, padding, BLOCK)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        g, r, b = g.contiguous(), len(x), x.shape[1]
        shape = (b, *x.shape[2:], *g.shape[2:], *w.shape[1:], ctx.stride, ctx.padding)
        into_rows, into_filters = None, torch.empty_like(w)
        if ctx.needs_input_grad[0]:
            into_rows = torch.empty_like(x)
            _spread[(r, triton.cdiv(x[0].numel(), BLOCK))](g, w, into_rows, *shape, BLOCK)
        taps = triton.next_power_of_2(w.shape[1] * w.shape[2])
        _taps[(r,)](x, g, into_filters, *shape, taps, CHUNK)
        return into_rows, into_filters, None, None


class MaxPool(torch.autograd.Function):
    """The largest of every k x k window; windows do not overlap, so each gradient has one place to go."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
        x = x.contiguous()
        ctx.shape, ctx.k, (h, w) = x.shape, k, x.shape[-2:]
        out = x.new_empty(*x.shape[:-2], h // k, w // k)
        where = torch.empty_like(out, dtype=torch.int8)
        n = out.numel()
        _largest[(triton.cdiv(n, BLOCK),)](x, out, where, n, h, w, h // k, w // k, k, BLOCK)
        ctx.save_for_backward(where)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (where,) = ctx.saved_tensors
        out, (h, w) = g.new_empty(ctx.shape), ctx.shape[-2:]
        n = out.numel()
        grid = (triton.cdiv(n, BLOCK),)
        _to_largest[grid](g.contiguous(), where, out, n, h, w, h // ctx.k, w // ctx.k, ctx.k, BLOCK)
        return out, None
