"""Bias, ReLU and pooling of planes x [p, h, w] in one pass: what comes after a convolution.

One by one they read and write the convolution's output four times forward and five times backward, here once each: see
`engines/stacked/fuse` for what that gave. Windows of 2 x 2 read and write two neighbours as one number, and so 16 bytes
at once: 65 loads of a thread became 17, because single numbers two apart do not join.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048  # numbers of a program


@triton.jit
def _halves(both, kind: tl.constexpr):
    """Two neighbours that were read as one number."""
    BITS: tl.constexpr = kind.primitive_bitwidth
    one = tl.uint32 if BITS == 32 else tl.uint16
    return both.to(one).to(kind, bitcast=True), (both >> BITS).to(one).to(kind, bitcast=True)


@triton.jit
def _together(left, right):
    """Two neighbours as one number, to be written at once."""
    BITS: tl.constexpr = left.dtype.primitive_bitwidth
    one = tl.uint32 if BITS == 32 else tl.uint16
    both = tl.uint64 if BITS == 32 else tl.uint32
    return left.to(one, bitcast=True).to(both) | (right.to(one, bitcast=True).to(both) << BITS)


@triton.jit
def _as_pairs(pointer):
    both = tl.uint64 if pointer.dtype.element_ty.primitive_bitwidth == 32 else tl.uint32
    return pointer.to(tl.pointer_type(both), bitcast=True)


@triton.jit
def better(seen, best, place, tap: tl.constexpr):
    """The first of equals stays, and NaN comes before all."""
    better = (seen > best) | ((seen != seen) & (best == best))
    return tl.where(better, seen, best), tl.where(better, tap, place).to(tl.int8)


@triton.jit
def cut_at_zero(best, place):
    """No place of a window that the ReLU zeroed gets the gradient; NaN stays."""
    place = tl.where(best > 0, place, tl.where(best != best, place, -1)).to(tl.int8)
    return tl.where(best < 0, 0.0, best).to(best.dtype), place


@triton.jit
def _turned(plane, A, B):
    """Plane (m, a, b) counted as (m, b, a); the same one for A = 1."""
    plane = plane.to(tl.int32)  # 64 bits would divide in a hundred instructions
    return (plane // (A * B) * (A * B) + plane % B * A + plane // B % A).to(tl.int64)


@triton.jit
def _largest(
    x, bias, out, where, PLANES, BIG, SMALL, CHANNELS, A, B,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The largest of each K x K window and its index: the first of equals, NaN before all, -1 where the ReLU is 0."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    HO: tl.constexpr = H // K
    WO: tl.constexpr = W // K
    inside = (first + p < PLANES)[:, None] & (n < HO * WO)[None, :]
    if BIAS:
        plane = (first + p).to(tl.int32)
        add = tl.load(bias + plane // BIG * CHANNELS + plane // SMALL % CHANNELS, mask=first + p < PLANES, other=0.0)
        add = add.to(tl.float32)[:, None]
    else:
        add = 0.0
    place = tl.zeros([BP, BN], tl.int8)
    best = tl.full([BP, BN], float("-inf"), tl.float32).to(out.dtype.element_ty)
    # Each number rounded as the separate sum would be, so that equals stay equals.
    if K == 2 and W % 2 == 0:
        pairs = _as_pairs(x) + first * (H * W // 2) + p[:, None] * (H * W // 2) + (n // WO * W + n % WO)[None, :]
        for line in tl.static_range(2):
            left, right = _halves(tl.load(pairs + line * (W // 2), mask=inside, other=0), x.dtype.element_ty)
            left, right = (left.to(tl.float32) + add).to(best.dtype), (right.to(tl.float32) + add).to(best.dtype)
            best, place = better(left, best, place, 2 * line)
            best, place = better(right, best, place, 2 * line + 1)
    else:
        at = x + first * H * W + p[:, None] * (H * W) + (n // WO * K * W + n % WO * K)[None, :]
        for tap in tl.static_range(K * K):
            seen = tl.load(at + tap // K * W + tap % K, mask=inside, other=0.0).to(tl.float32) + add
            best, place = better(seen.to(best.dtype), best, place, tap)
    if RELU:
        best, place = cut_at_zero(best, place)
    to = _turned(first + p, A, B)[:, None] * (HO * WO) + n[None, :]
    tl.store(out + to, best, mask=inside)
    tl.store(where + to, place, mask=inside)


@triton.jit
def _to_pairs(
    g, where, out, sums, PLANES, A, B,
    H: tl.constexpr, W: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """`_to_largest` for windows of 2 x 2 without a rest: a gradient is read once, and two numbers are written."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    SIZE: tl.constexpr = H * W // 4
    WO: tl.constexpr = W // 2
    inside = (first + p < PLANES)[:, None] & (n < SIZE)[None, :]
    at = _turned(first + p, A, B)[:, None] * SIZE + n[None, :]
    place = tl.load(where + at, mask=inside, other=-1)
    back = tl.load(g + at, mask=inside, other=0.0)
    none = tl.zeros_like(back)
    pairs = _as_pairs(out) + first * (2 * SIZE) + p[:, None] * (2 * SIZE) + (n // WO * W + n % WO)[None, :]
    for line in tl.static_range(2):
        left, right = tl.where(place == 2 * line, back, none), tl.where(place == 2 * line + 1, back, none)
        tl.store(pairs + line * WO, _together(left, right), mask=inside)
    tl.store(sums + first + p, tl.sum(tl.where(place >= 0, back, none).to(tl.float32), 1), mask=first + p < PLANES)


@triton.jit
def _to_largest(
    g, where, out, sums, PLANES, A, B, ZERO,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Each gradient to the place that was largest, and each plane's sum for the bias; ZERO: 0, unknown to compilers."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    if K & (K - 1):
        # Were n known to be small, places would be 16-bit numbers, two to a register: where K is no power of 2, ptxas
        # 12.8 loses constants among them, and gradients in half precision went astray.
        n = (n + ZERO).to(tl.uint32)
    HO: tl.constexpr = H // K
    WO: tl.constexpr = W // K
    y, x = n // W, n % W
    inside = (first + p < PLANES)[:, None] & (n < H * W)[None, :]
    seen = inside & ((y // K < HO) & (x // K < WO))[None, :]
    at = _turned(first + p, A, B)[:, None] * (HO * WO) + (y // K * WO + x // K)[None, :]
    mine = tl.load(where + at, mask=seen, other=-1) == (y % K * K + x % K)[None, :]
    back = tl.where(mine, tl.load(g + at, mask=seen, other=0.0), 0.0)
    tl.store(out + first * H * W + p[:, None] * (H * W) + n[None, :], back, mask=inside)
    tl.store(sums + first + p, tl.sum(back.to(tl.float32), 1), mask=first + p < PLANES)


class PoolFunction(torch.autograd.Function):
    """x [m, c, b, h, w] or [m, b, c, h, w] (`channel` is the axis of c), bias [m, c] or None.

    Windows k x k do not overlap, so each gradient has one place to go; k = 1 is a bias and a ReLU alone. With `turned`
    the output has those two axes the other way round.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int, turned: bool) -> Tensor:
        x, (m, s, t, h, w) = x.contiguous(), x.shape
        x = x if x.data_ptr() % 8 == 0 else x.clone()  # a slice may begin where no pair does
        out = x.new_empty(m, *((t, s) if turned else (s, t)), h // k, w // k)
        where = torch.empty_like(out, dtype=torch.int8)
        small = t if channel == 1 else 1
        grid, tile = _tiles(m * s * t, (h // k) * (w // k))
        given = x if bias is None else bias.contiguous()
        _largest[grid](
            x, given, out, where, m * s * t, s * t, small, x.shape[channel], s if turned else 1, t,
            h, w, k, bias is not None, relu, *tile,
        )  # fmt: skip
        ctx.save_for_backward(where)
        ctx.shape, ctx.k, ctx.channel, ctx.turned = x.shape, k, channel, turned
        ctx.bias = None if bias is None else bias.dtype
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (where,) = ctx.saved_tensors
        out, sums = to_largest(g, where, ctx.shape, ctx.k, ctx.turned)
        into_bias = None if ctx.bias is None else sums.sum(3 - ctx.channel).to(ctx.bias)
        return out, into_bias, *[None] * 4


def to_largest(g: Tensor, where: Tensor, shape: torch.Size, k: int, turned: bool) -> tuple[Tensor, Tensor]:
    """The gradient before the pooling, of that shape, and each plane's sum."""
    (h, w), g = shape[-2:], g.contiguous()
    out, sums = g.new_empty(shape), torch.empty(shape[:3], device=g.device)
    given = (g, where, out, sums, sums.numel(), shape[1] if turned else 1, shape[2])
    if k == 2 and h % 2 == w % 2 == 0:
        grid, tile = _tiles(sums.numel(), h * w // 4)
        _to_pairs[grid](*given, h, w, *tile)
    else:
        grid, tile = _tiles(sums.numel(), h * w)
        _to_largest[grid](*given, 0, h, w, k, *tile)
    return out, sums


def _tiles(planes: int, size: int) -> tuple[tuple[int], tuple[int, int]]:
    """Whole planes for each program: sums of a plane stay within one, and in its order."""
    wide = triton.next_power_of_2(size)
    tall = max(TILE // wide, 1)
    return (triton.cdiv(planes, tall),), (tall, wide)
