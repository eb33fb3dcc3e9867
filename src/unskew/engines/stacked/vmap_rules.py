"""Functions with a custom vmap rule for a stack of clients, where PyTorch's rule would be slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def with_vmap_rule(function: Callable[..., Any], stacked: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, but under vmap `stacked(m, in_dims, *args)`, whose results have the client axis first."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return function(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*(a for a in inputs if isinstance(a, Tensor)))
            ctx.rest = [None if isinstance(a, Tensor) else (a,) for a in inputs]
            # The backward pass runs outside of autocast, but must recompute the forward pass with the same dtypes.
            device_type = next(a for a in inputs if isinstance(a, Tensor)).device.type
            ctx.cast = (device_type, torch.get_autocast_dtype(device_type), torch.is_autocast_enabled(device_type))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = iter(ctx.saved_tensors)
            inputs = [next(saved) if rest is None else rest[0] for rest in ctx.rest]
            differentiable = [i for i, a in enumerate(inputs) if isinstance(a, Tensor) and a.is_floating_point()]

            def recompute(*tensors: Tensor) -> Any:
                return function(*(dict(zip(differentiable, tensors)).get(i, a) for i, a in enumerate(inputs)))

            device_type, dtype, enabled = ctx.cast
            with torch.autocast(device_type, dtype, enabled, cache_enabled=False):
                vjp = torch.func.vjp(recompute, *(inputs[i] for i in differentiable))[1]
            grad_of = dict(zip(differentiable, vjp(grads if len(grads) > 1 else grads[0])))
            return tuple(grad_of.get(i) for i in range(len(inputs)))

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
            out = stacked(info.batch_size, in_dims, *args)
            return out, tuple(0 for _ in out) if isinstance(out, tuple) else 0

    return Rule.apply


def clients_first(t: Tensor, dim: int | None, m: int) -> Tensor:
    """Move the client axis first; a tensor that all clients share is expanded without a copy."""
    if dim == 0:
        return t
    return t.expand(m, *t.shape) if dim is None else t.movedim(dim, 0)
