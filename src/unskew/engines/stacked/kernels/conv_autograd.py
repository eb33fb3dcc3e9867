"""The convolution of a cohort and what comes after it as a function with gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unskew.engines.stacked.kernels.conv_filter_grad import filters
from unskew.engines.stacked.kernels.conv_matmul import ConvEpilogue, multiply
from unskew.engines.stacked.kernels.pooling import to_largest


class ConvFunction(torch.autograd.Function):
    """`multiply` with its gradients; that of the rows is the convolution with turned filters.

    [m, o, b, ...], or [m, b, o, ...] for `flat`: turned outside, because what comes out of a function as a view cannot
    be changed in place.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        stride: int,
        padding: int,
        relu: bool,
        pool: int,
        flat: bool,
    ) -> Tensor:
        x, w, after = x.contiguous(), w.contiguous(), ConvEpilogue(bias, relu, pool, flat)
        out, noted = multiply(x, w, stride, padding, after)
        ctx.save_for_backward(x, w, noted if relu or pool > 1 else None)
        ctx.stride, ctx.padding, ctx.after = stride, padding, after._replace(bias=None)
        m, o, b = len(out), w.shape[1], x.shape[2]
        ctx.bias, ctx.shape = None if bias is None else bias.dtype, (m, o, b, *(n * pool for n in out.shape[3:]))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, noted = ctx.saved_tensors
        into_rows, into_filters, into_bias = None, None, None
        if noted is not None:
            g, sums = to_largest(g, noted, torch.Size(ctx.shape), ctx.after.pool, ctx.after.flat)
        else:
            g = g.transpose(1, 2) if ctx.after.flat else g
            sums = g.sum((3, 4), dtype=torch.float32) if ctx.bias is not None else g
        into_bias = sums.sum(2).to(ctx.bias) if ctx.needs_input_grad[2] else None
        g, kernel = g.contiguous(), (w.shape[3], w.shape[4])
        if ctx.needs_input_grad[1]:
            into_filters = filters(x, g, kernel, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[0]:
            turned = w.flip(3, 4).transpose(1, 2)
            spread_out = spread(g, x, kernel, ctx.stride, ctx.padding)
            into_rows, _ = multiply(spread_out, turned, 1, kernel[0] - 1 - ctx.padding)
        return into_rows, into_filters, into_bias, *[None] * 5


def spread(g: Tensor, x: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """A gradient with the rows and columns that a stride skipped, as zeros."""
    if stride == 1:
        return g
    sides = [side + 2 * padding - k + 1 for side, k in zip(x.shape[3:], kernel)]
    wide = g.new_zeros(*g.shape[:3], *sides)
    wide[..., ::stride, ::stride] = g
    return wide
