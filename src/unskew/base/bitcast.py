"""A tensor's bits as another type of the same size."""

from typing import Any

import torch
from torch import Tensor


def bits(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bits; torch 2.11 cannot map its own `view` over clients.

    >>> bits(torch.tensor([1.0], dtype=torch.bfloat16), torch.int16)
    tensor([16256], dtype=torch.int16)
    """
    return _Bits.apply(t, dtype)  # type: ignore[no-untyped-call]


class _Bits(torch.autograd.Function):
    @staticmethod
    def forward(t: Tensor, dtype: torch.dtype) -> Tensor:
        return t.view(dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, None], t: Tensor, dtype: torch.dtype) -> tuple[Tensor, int | None]:
        return t.view(dtype), in_dims[0]
