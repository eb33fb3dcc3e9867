"""Bias, ReLU and max pooling of planes x [p, h, w] in one pass, after a convolution.

As separate operations they read and write the convolution's output four times forward and five times backward, here
once each (fuse.py has the gain). 2 x 2 windows load and store two neighbours as one number, and so 16 bytes at once: a
thread's 65 loads became 17, because single numbers that are two apart cannot be combined.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048  # numbers per program


@triton.jit
def _split_pair(pair, dtype: tl.constexpr):
    """Split two neighbours that were loaded as one number."""
    BITS: tl.constexpr = dtype.primitive_bitwidth
    unsigned = tl.uint32 if BITS == 32 else tl.uint16
    return pair.to(unsigned).to(dtype, bitcast=True), (pair >> BITS).to(unsigned).to(dtype, bitcast=True)


@triton.jit
def _join_pair(left, right):
    """Two neighbours as one number, to be stored at once."""
    BITS: tl.constexpr = left.dtype.primitive_bitwidth
    unsigned = tl.uint32 if BITS == 32 else tl.uint16
    pair = tl.uint64 if BITS == 32 else tl.uint32
    return left.to(unsigned, bitcast=True).to(pair) | (right.to(unsigned, bitcast=True).to(pair) << BITS)


@triton.jit
def _as_pairs(pointer):
    pair = tl.uint64 if pointer.dtype.element_ty.primitive_bitwidth == 32 else tl.uint32
    return pointer.to(tl.pointer_type(pair), bitcast=True)


@triton.jit
def running_max(value, best, index, tap: tl.constexpr):
    """Update maximum and argmax; of equal numbers the first stays, and NaN counts as the largest."""
    larger = (value > best) | ((value != value) & (best == best))
    return tl.where(larger, value, best), tl.where(larger, tap, index).to(tl.int8)


@triton.jit
def apply_relu(best, index):
    """ReLU that keeps NaN. The argmax of a window that is zeroed becomes -1, so that it gets no gradient."""
    index = tl.where(best > 0, index, tl.where(best != best, index, -1)).to(tl.int8)
    return tl.where(best < 0, 0.0, best).to(best.dtype), index


@triton.jit
def _swapped_plane(plane, A, B):
    """The index of plane (m, a, b) in the order (m, b, a); unchanged for A = 1."""
    plane = plane.to(tl.int32)  # a 64-bit division takes a hundred instructions
    return (plane // (A * B) * (A * B) + plane % B * A + plane // B % A).to(tl.int64)


@triton.jit
def _max_pool(
    x, bias, out, argmax, PLANES, CLIENT_STRIDE, CHANNEL_STRIDE, CHANNELS, A, B,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, BIAS: tl.constexpr, RELU: tl.constexpr,
    BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Maximum and argmax of each K x K window: the first of equals, NaN as the largest, -1 where the ReLU is 0."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    HO: tl.constexpr = H // K
    WO: tl.constexpr = W // K
    inside = (first + p < PLANES)[:, None] & (n < HO * WO)[None, :]
    if BIAS:
        plane = (first + p).to(tl.int32)
        channel = plane // CLIENT_STRIDE * CHANNELS + plane // CHANNEL_STRIDE % CHANNELS
        add = tl.load(bias + channel, mask=first + p < PLANES, other=0.0).to(tl.float32)[:, None]
    else:
        add = 0.0
    index = tl.zeros([BP, BN], tl.int8)
    best = tl.full([BP, BN], float("-inf"), tl.float32).to(out.dtype.element_ty)
    # Round each number after adding the bias, as a separate addition would, so that ties stay ties.
    if K == 2 and W % 2 == 0:
        pairs = _as_pairs(x) + first * (H * W // 2) + p[:, None] * (H * W // 2) + (n // WO * W + n % WO)[None, :]
        for line in tl.static_range(2):
            left, right = _split_pair(tl.load(pairs + line * (W // 2), mask=inside, other=0), x.dtype.element_ty)
            left, right = (left.to(tl.float32) + add).to(best.dtype), (right.to(tl.float32) + add).to(best.dtype)
            best, index = running_max(left, best, index, 2 * line)
            best, index = running_max(right, best, index, 2 * line + 1)
    else:
        at = x + first * H * W + p[:, None] * (H * W) + (n // WO * K * W + n % WO * K)[None, :]
        for tap in tl.static_range(K * K):
            value = tl.load(at + tap // K * W + tap % K, mask=inside, other=0.0).to(tl.float32) + add
            best, index = running_max(value.to(best.dtype), best, index, tap)
    if RELU:
        best, index = apply_relu(best, index)
    window = _swapped_plane(first + p, A, B)[:, None] * (HO * WO) + n[None, :]
    tl.store(out + window, best, mask=inside)
    tl.store(argmax + window, index, mask=inside)


@triton.jit
def _max_unpool_2x2(
    g, argmax, out, sums, PLANES, A, B,
    H: tl.constexpr, W: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """`_max_unpool` for 2 x 2 windows of even planes: a gradient is loaded once, and two numbers are stored at once."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    SIZE: tl.constexpr = H * W // 4
    WO: tl.constexpr = W // 2
    inside = (first + p < PLANES)[:, None] & (n < SIZE)[None, :]
    at = _swapped_plane(first + p, A, B)[:, None] * SIZE + n[None, :]
    index = tl.load(argmax + at, mask=inside, other=-1)
    grad = tl.load(g + at, mask=inside, other=0.0)
    none = tl.zeros_like(grad)
    pairs = _as_pairs(out) + first * (2 * SIZE) + p[:, None] * (2 * SIZE) + (n // WO * W + n % WO)[None, :]
    for line in tl.static_range(2):
        left, right = tl.where(index == 2 * line, grad, none), tl.where(index == 2 * line + 1, grad, none)
        tl.store(pairs + line * WO, _join_pair(left, right), mask=inside)
    tl.store(sums + first + p, tl.sum(tl.where(index >= 0, grad, none).to(tl.float32), 1), mask=first + p < PLANES)


@triton.jit
def _max_unpool(
    g, argmax, out, sums, PLANES, A, B, ZERO,
    H: tl.constexpr, W: tl.constexpr, K: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Each gradient to its window's argmax, and sums of planes for the bias; ZERO is a 0 unknown to the compiler."""
    first = tl.program_id(0).to(tl.int64) * BP
    p, n = tl.arange(0, BP), tl.arange(0, BN)
    if K & (K - 1):
        # If n were known to be small, the compiler would use 16-bit positions, two to a register. ptxas 12.8 then loses
        # constants if K is no power of 2, and gradients in half precision were wrong.
        n = (n + ZERO).to(tl.uint32)
    HO: tl.constexpr = H // K
    WO: tl.constexpr = W // K
    y, x = n // W, n % W
    inside = (first + p < PLANES)[:, None] & (n < H * W)[None, :]
    in_windows = inside & ((y // K < HO) & (x // K < WO))[None, :]
    at = _swapped_plane(first + p, A, B)[:, None] * (HO * WO) + (y // K * WO + x // K)[None, :]
    is_max = tl.load(argmax + at, mask=in_windows, other=-1) == (y % K * K + x % K)[None, :]
    grad = tl.where(is_max, tl.load(g + at, mask=in_windows, other=0.0), 0.0)
    tl.store(out + first * H * W + p[:, None] * (H * W) + n[None, :], grad, mask=inside)
    tl.store(sums + first + p, tl.sum(grad.to(tl.float32), 1), mask=first + p < PLANES)


class PoolFunction(torch.autograd.Function):
    """x [m, c, b, h, w] or [m, b, c, h, w] (`channel` is the axis of c), bias [m, c] or None.

    k x k windows do not overlap, so each gradient goes to a single input; k = 1 is only a bias and a ReLU. With
    `swap_axes` the output has the axes of b and c in the other order.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor | None, channel: int, relu: bool, k: int, swap_axes: bool) -> Tensor:
        x, (m, s, t, h, w) = x.contiguous(), x.shape
        x = x if x.data_ptr() % 8 == 0 else x.clone()  # a slice may begin between two pairs
        out = x.new_empty(m, *((t, s) if swap_axes else (s, t)), h // k, w // k)
        argmax = torch.empty_like(out, dtype=torch.int8)
        channel_stride = t if channel == 1 else 1
        grid, tile = _tiles(m * s * t, (h // k) * (w // k))
        bias_or_unused = x if bias is None else bias.contiguous()
        _max_pool[grid](
            x, bias_or_unused, out, argmax, m * s * t, s * t, channel_stride, x.shape[channel],
            s if swap_axes else 1, t, h, w, k, bias is not None, relu, *tile,
        )  # fmt: skip
        ctx.save_for_backward(argmax)
        ctx.shape, ctx.k, ctx.channel, ctx.swap_axes = x.shape, k, channel, swap_axes
        ctx.bias = None if bias is None else bias.dtype
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (argmax,) = ctx.saved_tensors
        out, sums = max_unpool(g, argmax, ctx.shape, ctx.k, ctx.swap_axes)
        grad_bias = None if ctx.bias is None else sums.sum(3 - ctx.channel).to(ctx.bias)
        return out, grad_bias, *[None] * 4


def max_unpool(g: Tensor, argmax: Tensor, shape: torch.Size, k: int, swap_axes: bool) -> tuple[Tensor, Tensor]:
    """The gradient before the pooling, of shape `shape`, and the sum of each plane."""
    (h, w), g = shape[-2:], g.contiguous()
    out, sums = g.new_empty(shape), torch.empty(shape[:3], device=g.device)
    args = (g, argmax, out, sums, sums.numel(), shape[1] if swap_axes else 1, shape[2])
    if k == 2 and h % 2 == w % 2 == 0:
        grid, tile = _tiles(sums.numel(), h * w // 4)
        _max_unpool_2x2[grid](*args, h, w, *tile)
    else:
        grid, tile = _tiles(sums.numel(), h * w)
        _max_unpool[grid](*args, 0, h, w, k, *tile)
    return out, sums


def _tiles(planes: int, size: int) -> tuple[tuple[int], tuple[int, int]]:
    """The grid, and tiles of complete planes: each plane's sum is computed by one program, in a fixed order."""
    tile_numbers = triton.next_power_of_2(size)
    tile_planes = max(TILE // tile_numbers, 1)
    return (triton.cdiv(planes, tile_planes),), (tile_planes, tile_numbers)
