"""Rows times each client's weights, with every matrix stored along its long side.

cuBLAS takes its matrix units at full width only where lines of a matrix begin at multiples of 16 bytes: 512 outputs or
4096 inputs do, 50 rows do not. By PyTorch's own backward either the activations lie along the rows, and on an H200 all
three products of the cnn's hidden layer were unaligned ones (178 of a step's 1044 us with ten clients, where their
weights are read in 60), or the gradient of the weights lies across them and is copied at every step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unskew.engines.stacked import kernels
from unskew.engines.stacked.lowrank_grad import LowRankCapture, who_takes


class LinearFunction(torch.autograd.Function):
    """rows [m, b, i] @ weights [m, o, i]^T to [m, b, o], weights as `kind`; gradients use the layout of their tensor.

    `factors` may take the gradient of the weights as it comes: then there is none here.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, kind: torch.dtype, factors: LowRankCapture | None) -> Tensor:
        cast = weights.to(kind)
        ctx.save_for_backward(rows, weights, None if cast is weights else cast)
        ctx.kind, ctx.factors = kind, factors
        return kernels.matmul(rows, cast)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        rows, weights, cast = ctx.saved_tensors
        into_rows, into_weights, *_ = ctx.needs_input_grad
        # Whoever differentiates once more needs the weights themselves.
        cast = weights.to(ctx.kind) if cast is None or torch.is_grad_enabled() else cast
        if into_weights and ctx.factors is not None and ctx.factors.take(weights, g, rows):
            into_weights = False
        return (
            torch.bmm(g, cast) if into_rows else None,
            torch.bmm(g.mT, rows).to(weights.dtype) if into_weights else None,
            None,
            None,
        )


def product(rows: Tensor, weights: Tensor, kind: torch.dtype) -> Tensor:
    """The same; within a map or a gradient of a method's own, which know no such rule, by PyTorch's."""
    if torch._C._are_functorch_transforms_active():
        return torch.bmm(rows, weights.to(kind).transpose(1, 2))
    return LinearFunction.apply(rows, weights, kind, who_takes(weights, rows))  # type: ignore[no-untyped-call]
