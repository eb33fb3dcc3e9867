"""Linear layers of stacked clients, forward and backward, with every matrix laid out for the tensor cores.

cuBLAS uses the tensor cores at full width only if the lines of a matrix begin at multiples of 16 bytes: with 512
outputs or 4096 inputs they do, with 50 rows they do not. In PyTorch's own backward either the activations are
contiguous along the rows, or the gradient of the weights is transposed and copied at every step. In the first case all
three products of the cnn's hidden layer were unaligned on an H200: 178 of a step's 1044 us with ten clients, where
reading their weights takes 60.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unskew.engines.stacked import kernels
from unskew.engines.stacked.lowrank_grad import LowRankCapture, capture_for


class LinearFunction(torch.autograd.Function):
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o], weights as `dtype`; gradients use the layout of their tensor.

    If `capture` takes the factors of the weights' gradient, backward returns no gradient for the weights.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, dtype: torch.dtype, capture: LowRankCapture | None) -> Tensor:
        cast = weights.to(dtype)
        ctx.save_for_backward(rows, weights, None if cast is weights else cast)
        ctx.dtype, ctx.capture = dtype, capture
        return kernels.matmul(rows, cast)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        rows, weights, cast = ctx.saved_tensors
        needs_rows, needs_weights, *_ = ctx.needs_input_grad
        # A second derivative needs the weights themselves, not their saved cast.
        cast = weights.to(ctx.dtype) if cast is None or torch.is_grad_enabled() else cast
        if needs_weights and ctx.capture is not None and ctx.capture.capture(weights, g, rows):
            needs_weights = False
        return (
            torch.bmm(g, cast) if needs_rows else None,
            torch.bmm(g.mT, rows).to(weights.dtype) if needs_weights else None,
            None,
            None,
        )


def stacked_linear(rows: Tensor, weights: Tensor, dtype: torch.dtype) -> Tensor:
    """The same product, but by PyTorch inside a method's own `vmap` or `grad`, which have no rule for the function."""
    if torch._C._are_functorch_transforms_active():
        return torch.bmm(rows, weights.to(dtype).transpose(1, 2))
    return LinearFunction.apply(rows, weights, dtype, capture_for(weights, rows))  # type: ignore[no-untyped-call]
