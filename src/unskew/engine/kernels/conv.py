"""Convolution of a whole cohort as one implicit matrix product per direction, each client with its own filters.

A grouped convolution of cuDNN starts one kernel per client; unfolding the rows writes them 25 times for a 5x5 filter.
Here one program gathers the rows it multiplies: 255 launches a step became a few, and with the recorded step
`lmd-shards-10` fell from 406 to 145 ms a round. Filters of few channels as one axis with the taps, and a pooling of our
own, took it to 116; larger tiles took 13 of the products' 32 ms. Shapes: x [m, c, b, h, w], w [m, o, c, kh, kw], out
[m, o, b, h', w'], so that a client's product is [o, c kh kw] @ [c kh kw, b h' w'].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

LEAST = 16  # smallest side that the matrix units take
WIDE = 64  # places of a filter in one tile of its gradient
PARTS, FULL = 512, 264  # programs wanted for a gradient of filters, and at least for a product: two a multiprocessor
NARROW = 64  # columns of the smallest tile


class Tile(NamedTuple):
    """Columns of a tile, how deep it goes at once, and how many warps and loads ahead work on it."""

    rows: int
    depth: int
    warps: int
    stages: int


# Best of 36 each on an H200 (cnn's second convolution: TF32 284 to 171 us, bf16 89 to 79 us).
TAPS, FLAT, EXACT = Tile(256, 32, 8, 2), Tile(256, 16, 4, 3), Tile(128, 32, 4, 3)
FILTERS, HALF_FILTERS = Tile(WIDE, 32, 4, 3), Tile(WIDE, 64, 8, 2)


@triton.jit
def _multiply(
    x, w, out, C, B, OUT,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BO: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """out[m, o, n] = sum over taps and channels of w[m, tap, o, c] x[m, c, n moved by the tap]."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    c = tl.arange(0, BC)
    N, plane = B * HO * WO, B * H * W
    y0, x0 = n // WO % HO * S - P, n % WO * S - P
    at = n // (HO * WO) * H * W + y0 * W + x0
    rows_of, filters_of = x + m * C * plane, w + m * KH * KW * OUT * C
    total = tl.zeros([BO, BN], tl.float32)
    for tap in range(KH * KW):
        i, j = tap // KW, tap % KW
        inside = (n < N) & (y0 + i >= 0) & (y0 + i < H) & (x0 + j >= 0) & (x0 + j < W)
        for first in range(0, C, BC):
            k = first + c
            rows = tl.load(
                rows_of + k[:, None] * plane + (at + i * W + j)[None, :],
                mask=(k < C)[:, None] & inside[None, :],
                other=0.0,
            )
            filters = tl.load(
                filters_of + (tap * OUT + o[:, None]) * C + k[None, :],
                mask=(o < OUT)[:, None] & (k < C)[None, :],
                other=0.0,
            )
            total = tl.dot(filters, rows, total, input_precision=PRECISION)
    place = out + (m * OUT + o[:, None]) * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(o < OUT)[:, None] & (n < N)[None, :])


@triton.jit
def _multiply_flat(
    x, w, out, C, B, OUT,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BO: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The same with taps and channels as one axis, w[m, o, k]: for few channels, which alone would not fill a tile."""
    m = tl.program_id(2).to(tl.int64)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    o = tl.program_id(1) * BO + tl.arange(0, BO)
    N, K = B * HO * WO, C * KH * KW
    b, y0, x0 = n // (HO * WO), n // WO % HO * S - P, n % WO * S - P
    total = tl.zeros([BO, BN], tl.float32)
    for first in range(0, K, BK):
        k = first + tl.arange(0, BK)
        c, yi, xi = k // (KH * KW), (k // KW % KH)[:, None] + y0[None, :], (k % KW)[:, None] + x0[None, :]
        inside = (k < K)[:, None] & (n < N)[None, :] & (yi >= 0) & (yi < H) & (xi >= 0) & (xi < W)
        at = m * C * B * H * W + ((c[:, None] * B + b[None, :]) * H + yi) * W + xi
        rows = tl.load(x + at, mask=inside, other=0.0)
        filters = tl.load(
            w + (m * OUT + o[:, None]) * K + k[None, :], mask=(o < OUT)[:, None] & (k < K)[None, :], other=0.0
        )
        total = tl.dot(filters, rows, total, input_precision=PRECISION)
    place = out + (m * OUT + o[:, None]) * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(o < OUT)[:, None] & (n < N)[None, :])


@triton.jit
def _filters(
    x, g, out, C, B, OUT, M, LENGTH,
    H: tl.constexpr, W: tl.constexpr, HO: tl.constexpr, WO: tl.constexpr,
    KH: tl.constexpr, KW: tl.constexpr, S: tl.constexpr, P: tl.constexpr, PRECISION: tl.constexpr,
    BO: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out[part, m, o, k] = sum over the part's n of g[m, o, n] x[m, k at n]."""
    m, part = tl.program_id(2).to(tl.int64), tl.program_id(1)
    N, K = B * HO * WO, C * KH * KW
    tiles = tl.cdiv(K, BK)
    k = tl.program_id(0) % tiles * BK + tl.arange(0, BK)
    o = tl.program_id(0) // tiles * BO + tl.arange(0, BO)
    c, i, j = k // (KH * KW), k // KW % KH, k % KW
    total = tl.zeros([BO, BK], tl.float32)
    for first in range(part * LENGTH, tl.minimum((part + 1) * LENGTH, N), BN):
        n = first + tl.arange(0, BN)
        b = n // (HO * WO)
        yi, xi = (n // WO % HO * S - P)[None, :] + i[:, None], (n % WO * S - P)[None, :] + j[:, None]
        inside = (k < K)[:, None] & (n < N)[None, :] & (yi >= 0) & (yi < H) & (xi >= 0) & (xi < W)
        at = m * C * B * H * W + ((c[:, None] * B + b[None, :]) * H + yi) * W + xi
        rows = tl.load(x + at, mask=inside, other=0.0)  # rows side by side in memory are side by side in the tile
        back = tl.load(
            g + (m * OUT + o[:, None]) * N + n[None, :], mask=(o < OUT)[:, None] & (n < N)[None, :], other=0.0
        )
        total = tl.dot(back, tl.trans(rows), total, input_precision=PRECISION)
    place = out + ((part * M + m) * OUT + o[:, None]) * K + k[None, :]
    tl.store(place, total, mask=(o < OUT)[:, None] & (k < K)[None, :])


def multiply(x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
    """The convolution itself."""
    (m, c, b, h, width), (o, kh, kw) = x.shape, (w.shape[1], *w.shape[3:])
    ho, wo = (h + 2 * padding - kh) // stride + 1, (width + 2 * padding - kw) // stride + 1
    out = x.new_empty(m, o, b, ho, wo)
    # By taps is twice as fast in bf16 (152 against 97 TFLOP/s on an H200, 32 channels) and slower in float32.
    by_tap, tall = c >= LEAST and x.dtype != torch.float32, _side(o)
    tile = TAPS if by_tap else FLAT if x.dtype != torch.float32 or _precision() == "tf32" else EXACT
    depth = max(min(triton.next_power_of_2(c), tile.depth), LEAST) if by_tap else tile.depth
    kernel, filters = (_multiply, w.permute(0, 3, 4, 1, 2)) if by_tap else (_multiply_flat, w)
    n, high, rows = b * ho * wo, triton.cdiv(o, tall), tile.rows
    while rows > NARROW and triton.cdiv(n, rows) * high * m < FULL:  # few clients: smaller tiles for more programs
        rows //= 2
    kernel[(triton.cdiv(n, rows), high, m)](
        x, filters.contiguous(), out, c, b, o, h, width, ho, wo, kh, kw, stride, padding, _precision(),
        tall, rows, depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


def filters(x: Tensor, g: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """Gradient of the filters, added up in parts of the rows so that the whole device has work."""
    (m, c, b, h, width), (o, ho, wo) = x.shape, (g.shape[1], *g.shape[3:])
    k, n, tall = c * kernel[0] * kernel[1], b * ho * wo, _side(o)
    tile = FILTERS if x.dtype == torch.float32 else HALF_FILTERS
    tiles = triton.cdiv(k, tile.rows) * triton.cdiv(o, tall)
    parts = max(min(PARTS // (tiles * m), triton.cdiv(n, 8 * tile.depth)), 1)
    length = triton.cdiv(triton.cdiv(n, parts), tile.depth) * tile.depth
    parts = triton.cdiv(n, length)
    out = torch.empty(parts, m, o, k, device=x.device)
    _filters[(tiles, parts, m)](
        x, g, out, c, b, o, m, length, h, width, ho, wo, *kernel, stride, padding, _precision(),
        tall, tile.rows, tile.depth, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out.sum(0).to(x.dtype).view(m, o, c, *kernel)


class Convolve(torch.autograd.Function):
    """`multiply` with its gradients; that of the rows is the convolution with turned filters."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        ctx.save_for_backward(x, w)
        ctx.stride, ctx.padding = stride, padding
        return multiply(x, w, stride, padding)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        g, kernel = g.contiguous(), (w.shape[3], w.shape[4])
        into_rows, into_filters = None, None
        if ctx.needs_input_grad[1]:
            into_filters = filters(x, g, kernel, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[0]:
            turned = w.flip(3, 4).transpose(1, 2).contiguous()
            into_rows = multiply(spread(g, x, kernel, ctx.stride, ctx.padding), turned, 1, kernel[0] - 1 - ctx.padding)
        return into_rows, into_filters, None, None


def spread(g: Tensor, x: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """A gradient with the rows and columns that a stride skipped, as zeros."""
    if stride == 1:
        return g
    sides = [side + 2 * padding - k + 1 for side, k in zip(x.shape[3:], kernel)]
    wide = g.new_zeros(*g.shape[:3], *sides)
    wide[..., ::stride, ::stride] = g
    return wide


def _side(o: int) -> int:
    return max(min(triton.next_power_of_2(o), 64), LEAST)


def _precision() -> str:
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"
