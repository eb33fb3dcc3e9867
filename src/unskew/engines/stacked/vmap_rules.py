"""A function with a rule of its own for a stack of clients, where vmap's would be slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Stacked = Callable[..., Any]


def mapped(plain: Callable[..., Any], stacked: Stacked) -> Callable[..., Any]:
    """`plain`, but under vmap `stacked(m, in_dims, *args)`, whose results have the clients in front."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return plain(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*(a for a in inputs if isinstance(a, Tensor)))
            ctx.rest = [None if isinstance(a, Tensor) else (a,) for a in inputs]
            # A backward pass runs outside of autocast, and what is computed again must be computed alike.
            kind = next(a for a in inputs if isinstance(a, Tensor)).device.type
            ctx.cast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            saved = iter(ctx.saved_tensors)
            inputs = [next(saved) if rest is None else rest[0] for rest in ctx.rest]
            moving = [i for i, a in enumerate(inputs) if isinstance(a, Tensor) and a.is_floating_point()]

            def again(*given: Tensor) -> Any:
                return plain(*(dict(zip(moving, given)).get(i, a) for i, a in enumerate(inputs)))

            kind, dtype, enabled = ctx.cast
            with torch.autocast(kind, dtype, enabled, cache_enabled=False):
                pull = torch.func.vjp(again, *(inputs[i] for i in moving))[1]
            found = dict(zip(moving, pull(grads if len(grads) > 1 else grads[0])))
            return tuple(found.get(i) for i in range(len(inputs)))

        @staticmethod
        def vmap(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
            out = stacked(info.batch_size, in_dims, *args)
            return out, tuple(0 for _ in out) if isinstance(out, tuple) else 0

    return Rule.apply


def front(t: Tensor, dim: int | None, m: int) -> Tensor:
    """The clients' axis first; what all clients share is repeated without a copy."""
    if dim == 0:
        return t
    return t.expand(m, *t.shape) if dim is None else t.movedim(dim, 0)
