"""Sums of messages: in float64 and in the order of the clients.

Therefore neither the engine nor the number of workers nor the size of a cohort can change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import State, Value, as_state
from unskew.engines.engine import AddUp, StackedMessages

MAX_QUEUED = 2**29  # bytes of an artefact queued to be added in one launch: enough for a round of `pfl-cifar`


@dataclass
class Sum:
    """A growing sum of one artefact: floats in float64, integers in int64."""

    name: str  # of the artefact
    specs: dict[str, tuple[torch.dtype, torch.Size]]  # dtype and shape of each tensor, the same for all clients
    integers: State  # the first client's integers
    is_tensor: bool  # the artefact is one tensor, not a dict of them
    total: State  # the sum so far
    add_up: AddUp | None  # adds many messages at once, where an engine can; else they are added one by one
    floats: list[str]  # names of the tensors that are added up in float64
    float_bytes: int  # of one message
    weight: float = 0.0  # sum of the factors, by which a mean is divided
    _float64: list[Tensor] = field(default_factory=list)  # reused buffer for the floats of one message
    _queue: list[StackedMessages] = field(default_factory=list)

    @classmethod
    def like(cls, name: str, value: Value, add_up: AddUp | None) -> Sum:
        """An empty sum for values of this form."""
        tensors = as_state(value)
        # The zeros are contiguous whatever the message's memory format: a kernel reads both in the same order.
        zeros = _zeros_like(tensors)
        # Not the value itself: it may be a view of a whole cohort's messages, which would live until the round ends.
        integers = {k: t.clone() for k, t in tensors.items() if not t.is_floating_point()}
        specs = {k: (t.dtype, t.shape) for k, t in tensors.items()}
        floats = [k for k, t in tensors.items() if t.is_floating_point()]
        float_bytes = sum(tensors[k].nbytes for k in floats)
        return cls(name, specs, integers, not isinstance(value, dict), zeros, add_up, floats, float_bytes)

    def add_rows(self, value: Value, rows_at: list[int], factors: list[float]) -> None:
        """Add the rows of values with a leading axis, all of them, in this order."""
        tensors = as_state(value)
        self._check(tensors)
        for factor in factors:
            self.weight += factor
        # By name: a message that crossed a process may list its tensors in another order.
        messages = StackedMessages([tensors[key] for key in self.floats], rows_at, factors)
        if self.floats and self.add_up is not None:
            self._enqueue(messages)
        elif self.floats:
            self._add_one_by_one(messages)
        for key in self.integers:
            self.total[key] += tensors[key].long().sum(0)

    def _add_one_by_one(self, messages: StackedMessages) -> None:
        """Add client by client, with two launches for all tensors of a client instead of two for each."""
        self._float64 = self._float64 or [torch.empty_like(self.total[key]) for key in self.floats]
        for i, factor in zip(messages.order, messages.factors):
            torch._foreach_copy_(self._float64, [t[i] for t in messages.tensors])
            torch._foreach_add_([self.total[key] for key in self.floats], self._float64, alpha=factor)

    def finish(self, mean: bool) -> Any:
        """The sum or the weighted mean; a mean of integers has no meaning and is the first client's value."""
        self._flush()
        specs = self.specs.items()
        result = {key: torch.empty(shape, dtype=dtype, device=self.total[key].device) for key, (dtype, shape) in specs}
        floats, integers = ([self.total[key] for key in names] for names in (self.floats, self.integers))
        if floats and mean:
            floats = list(torch._foreach_div(floats, self.weight))
        for names, total in ((self.floats, floats), (self.integers, integers)):  # one launch for all of a kind
            if total:
                torch._foreach_copy_([result[key] for key in names], total)
        result |= self.integers if mean else {}
        return result[""] if self.is_tensor else result

    def _check(self, tensors: State) -> None:
        """Compare with the first client's form, because a kernel reads as many numbers as the sum has."""
        for key, (dtype, shape) in self.specs.items():
            tensor = tensors.get(key)
            if tensor is None or tensor.shape[1:] != shape or tensor.dtype != dtype:
                raise UserError(
                    f"artefact {self.name}: expected {key or 'a tensor'} of every client to be {dtype} "
                    f"{list(shape)} as the first client's, found {_form(tensor)}; sums and means need that, "
                    "reduce='each' does not"
                )

    def _enqueue(self, messages: StackedMessages) -> None:
        self._queue.append(messages)
        if sum(len(each.order) for each in self._queue) * self.float_bytes > MAX_QUEUED:
            self._flush()

    def _flush(self) -> None:
        if self._queue and self.add_up is not None:
            self.add_up([self.total[key] for key in self.floats], self._queue)
        self._queue = []


def _form(t: Tensor | None) -> str:
    return "none" if t is None else f"{t.dtype} {list(t.shape[1:])}"


def _zeros_like(tensors: State) -> State:
    """Zeros to which such tensors are added, those of a kind allocated together: one launch instead of one for each."""
    zeros: State = {}
    for dtype in (torch.float64, torch.int64):
        same_kind = {k: t for k, t in tensors.items() if t.is_floating_point() == dtype.is_floating_point}
        if same_kind:
            device = next(iter(same_kind.values())).device
            flat = torch.zeros(sum(t.numel() for t in same_kind.values()), dtype=dtype, device=device)
            split = torch.split(flat, [t.numel() for t in same_kind.values()])
            zeros |= {k: part.view(t.shape) for (k, t), part in zip(same_kind.items(), split)}
    return {k: zeros[k] for k in tensors}
