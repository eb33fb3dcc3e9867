"""The convolution of a cohort and its epilogue as an autograd function."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unskew.engines.stacked.kernels.conv_filter_grad import filter_grad
from unskew.engines.stacked.kernels.conv_matmul import ConvEpilogue, implicit_matmul
from unskew.engines.stacked.kernels.pooling import max_unpool


class ConvFunction(torch.autograd.Function):
    """`implicit_matmul` with gradients; the input gradient is a convolution with flipped filters.

    The output is [m, o, b, ...], or [m, b, o, ...] with `flat`. The caller transposes it, because a view returned by an
    autograd function cannot be changed in place.
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
        out, argmax = implicit_matmul(x, w, stride, padding, after)
        ctx.save_for_backward(x, w, argmax if relu or pool > 1 else None)
        ctx.stride, ctx.padding, ctx.after = stride, padding, after._replace(bias=None)
        m, o, b = len(out), w.shape[1], x.shape[2]
        ctx.bias, ctx.shape = None if bias is None else bias.dtype, (m, o, b, *(n * pool for n in out.shape[3:]))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, w, argmax = ctx.saved_tensors
        grad_x, grad_w, grad_bias = None, None, None
        if argmax is not None:
            g, sums = max_unpool(g, argmax, torch.Size(ctx.shape), ctx.after.pool, ctx.after.flat)
        else:
            g = g.transpose(1, 2) if ctx.after.flat else g
            sums = g.sum((3, 4), dtype=torch.float32) if ctx.bias is not None else g
        grad_bias = sums.sum(2).to(ctx.bias) if ctx.needs_input_grad[2] else None
        g, kernel = g.contiguous(), (w.shape[3], w.shape[4])
        if ctx.needs_input_grad[1]:
            grad_w = filter_grad(x, g, kernel, ctx.stride, ctx.padding)
        if ctx.needs_input_grad[0]:
            flipped = w.flip(3, 4).transpose(1, 2)
            dilated = dilate(g, x, kernel, ctx.stride, ctx.padding)
            grad_x, _ = implicit_matmul(dilated, flipped, 1, kernel[0] - 1 - ctx.padding)
        return grad_x, grad_w, grad_bias, *[None] * 5


def dilate(g: Tensor, x: Tensor, kernel: tuple[int, int], stride: int, padding: int) -> Tensor:
    """A gradient with zeros in the lines and columns that a stride skipped."""
    if stride == 1:
        return g
    sides = [side + 2 * padding - k + 1 for side, k in zip(x.shape[3:], kernel)]
    dilated = g.new_zeros(*g.shape[:3], *sides)
    dilated[..., ::stride, ::stride] = g
    return dilated
