"""Low-rank gradients: a linear layer's weight gradient as two factors, the output gradients and the layer's inputs.

The optimiser's kernel multiplies them tile by tile. A dense gradient is as large as the weights, and one kernel writes
it and the next reads it: without the dense gradient a step of the hidden layer of the benchmark `pfl-cifar` takes 185
instead of 338 us (H200, TF32), in bf16 180 instead of 515. Used with the SGD kernel without clipping, for large weights
and few rows; `stacked_linear.py` captures the factors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor

from unskew.engines.stacked import kernels
from unskew.protocol.optimiser import grad_or_zeros

MemoryKey = tuple[int, tuple[int, ...]]
_active: ContextVar[LowRankCapture | None] = ContextVar("lowrank_capture", default=None)


class LowRankGrad(NamedTuple):
    """The gradient of weights [m, o, i]: grad_output [m, b, o]^T @ inputs [m, b, i] + extra (from other loss terms).

    m clients, b rows of a batch, o outputs, i inputs of the layer.
    """

    grad_output: Tensor
    inputs: Tensor
    extra: Tensor | None

    def dense(self, dtype: torch.dtype) -> Tensor:
        product = torch.bmm(self.grad_output.mT, self.inputs).to(dtype)
        return product if self.extra is None else product + self.extra


class LowRankCapture:
    """Captures the gradient factors of a step's large leaves from products that are computed within `capturing()`."""

    def __init__(self, leaves: Sequence[Tensor]) -> None:
        self._in_backward = False
        large = (
            t for t in leaves if t.ndim == 3 and kernels.MEMORY_BOUND_WEIGHTS <= t[0].numel() < kernels.MAX_NUMBERS
        )
        self._captured: dict[MemoryKey, list[tuple[Tensor, Tensor]]] = {_memory_key(leaf): [] for leaf in large}

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        token = _active.set(self)
        try:
            yield
        finally:
            _active.reset(token)

    def gradients(self, loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor | LowRankGrad]:
        """As `protocol.optimiser.gradients`, but low-rank for leaves whose factors were captured."""
        for pairs in self._captured.values():  # left by a step that failed half way
            pairs.clear()
        self._in_backward = True  # only in the step's own backward pass: a loss may also call autograd.grad
        try:
            extra = torch.autograd.grad(loss, leaves, allow_unused=True)
        finally:
            self._in_backward = False
        return [self._gradient(leaf, rest) for leaf, rest in zip(leaves, extra)]

    def capture(self, weights: Tensor, grad_output: Tensor, inputs: Tensor) -> bool:
        """Keep the factors of a gradient during the step's own backward pass; returns whether they were kept."""
        if self._in_backward:
            self._captured[_memory_key(weights)].append((grad_output, inputs))
        return self._in_backward

    def _gradient(self, leaf: Tensor, extra: Tensor | None) -> Tensor | LowRankGrad:
        pairs = self._captured.get(_memory_key(leaf))
        if not pairs:
            return grad_or_zeros(extra, leaf)
        # A layer that was used twice: a sum of products is the product of the concatenated factors.
        grad_output, inputs = (torch.cat(each, 1) if len(each) > 1 else each[0] for each in zip(*pairs))
        pairs.clear()
        return LowRankGrad(grad_output.contiguous(), inputs.contiguous(), None if extra is None else extra.contiguous())


def capture_for(weights: Tensor, inputs: Tensor) -> LowRankCapture | None:
    """The active capture if it captures the gradient factors of these weights: a leaf itself, not a view of one."""
    capture, few_rows = _active.get(), inputs.shape[1] <= kernels.MEMORY_BOUND_ROWS
    suited = few_rows and weights.is_leaf and weights.is_contiguous()
    return capture if capture is not None and suited and _memory_key(weights) in capture._captured else None


def _memory_key(t: Tensor) -> MemoryKey:
    """Identifies a leaf by its memory, because inside `torch.func.vmap` a leaf is another tensor object."""
    return t.data_ptr(), tuple(t.shape)
