"""The inputs of many steps, each step's contiguous in memory, so that one copy fetches all inputs of a step.

Copying tensor by tensor took six launches and 20 us a step of `pfl-cifar` (H200), and with large batches ran at half
the memory bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unskew.base.tree import tree_map

CHUNK = 512  # 8-byte words that one block of a GPU copies
ALIGNMENT = 16  # tensors begin at multiples of this many 8-byte words


class StepInputBuffer:
    """Memory for `steps` trees like `first`, whose tensors are [1, ...]; fill it through `tensors`, [steps, ...].

    Tensors keep the memory order of axes that they have in `first`.
    """

    def __init__(self, first: Any, steps: int, device: torch.device) -> None:
        makers, length = list[Callable[[Tensor], Tensor]](), 0

        def add_view(t: Tensor) -> Tensor:
            nonlocal length
            makers.append(_make_view(length, t[0]))
            length += -(-t[0].nbytes // (8 * ALIGNMENT)) * ALIGNMENT
            return t.new_empty(0)  # only its place in the tree is needed; a slice would keep the whole batch alive

        self._structure, self._view_makers = tree_map(add_view, first), makers
        self._chunks_per_step = max(-(-length // CHUNK), 1)
        self._memory = torch.empty(steps, self._chunks_per_step * CHUNK, dtype=torch.int64, device=device)
        self._first_chunks = torch.arange(self._chunks_per_step, device=device)
        self._next_chunks = self._first_chunks.clone()  # of the step that `next_step` returns
        self.tensors = self._view_all(self._memory)

    def rewind(self) -> None:
        """Back to the first step."""
        self._next_chunks.copy_(self._first_chunks)

    def next_step(self) -> Any:
        """Copy out the tensors [...] of the next step, and advance."""
        taken = self._memory.view(-1, CHUNK)[self._next_chunks]
        self._next_chunks.add_(self._chunks_per_step)
        return tree_map(lambda t: t[0], self._view_all(taken.view(1, -1)))

    def _view_all(self, memory: Tensor) -> Any:
        """The tree's tensors as views of memory [steps, length]."""
        makers = iter(self._view_makers)
        return tree_map(lambda _: next(makers)(memory), self._structure)


def _make_view(first: int, like: Tensor) -> Callable[[Tensor], Tensor]:
    """A function from memory [steps, length] to the tensor [steps, ...] that begins `first` words into each step."""
    count, end = like.numel(), first + -(-like.nbytes // 8)
    order = sorted(range(like.ndim), key=like.stride, reverse=True)
    shape, axes = [like.shape[i] for i in order], [0, *(1 + order.index(i) for i in range(like.ndim))]

    def view(memory: Tensor) -> Tensor:
        return memory[:, first:end].view(like.dtype)[:, :count].view(len(memory), *shape).permute(axes)

    return view
