"""Reinterpret a tensor's bits as another type of the same size."""

from typing import Any

import torch
from torch import Tensor


def bitcast(t: Tensor, dtype: torch.dtype) -> Tensor:
    """Like `t.view(dtype)`, which torch 2.11 cannot run under vmap.

    >>> bitcast(torch.tensor([1.0], dtype=torch.bfloat16), torch.int16)
    tensor([16256], dtype=torch.int16)
    """
    return _Bitcast.apply(t, dtype)  # type: ignore[no-untyped-call]


class _Bitcast(torch.autograd.Function):
    @staticmethod
    def forward(t: Tensor, dtype: torch.dtype) -> Tensor:
        return t.view(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], t: Tensor, dtype: torch.dtype) -> tuple[Tensor, int | None]:
        return t.view(dtype), in_dims[0]
