"""Sums of messages: in float64 and in the order of the clients.

So neither the engine nor the number of workers nor the size of a cohort can change the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import State, Value, as_state
from unskew.engines.engine import AddUp, StackedMessages

WAITING = 2**29  # bytes of an artefact that wait to be added up together: a round of `pfl-cifar` in one launch


@dataclass
class Sum:
    """A growing sum of one artefact: floats in float64, integers in int64."""

    name: str  # of the artefact
    kinds: dict[str, tuple[torch.dtype, torch.Size]]  # of the first client's tensors, which all others must have
    whole: State  # the first client's integers
    single: bool  # a tensor, and no dict of them
    total: State
    add_up: AddUp | None  # adds many messages at once, where an engine can; else they are added one by one
    floats: list[str]  # names of the tensors that are added up in float64
    size: int  # bytes of a message's floats
    weight: float = 0.0
    _wide: list[Tensor] = field(default_factory=list)  # floats of one message in float64; its memory is used again
    _waiting: list[StackedMessages] = field(default_factory=list)

    @classmethod
    def like(cls, name: str, value: Value, add_up: AddUp | None) -> Sum:
        """A sum of nothing yet, for values such as this one."""
        # In the plain order of memory, whatever the message's is: a kernel walks through both.
        named = as_state(value)
        zeros = _zeros(named)
        # Not the value itself: it may be a view of a whole cohort's messages, which would live until the round ends.
        whole = {k: t.clone() for k, t in named.items() if not t.is_floating_point()}
        kinds = {k: (t.dtype, t.shape) for k, t in named.items()}
        floats = [k for k, t in named.items() if t.is_floating_point()]
        size = sum(named[k].nbytes for k in floats)
        return cls(name, kinds, whole, not isinstance(value, dict), zeros, add_up, floats, size)

    def add_rows(self, value: Value, at: list[int], factors: list[float]) -> None:
        """The rows of values with a leading axis, all of them, in that order."""
        named = as_state(value)
        self._check(named)
        for factor in factors:
            self.weight += factor
        # By name: a message that crossed a process may list its tensors in another order.
        rows = StackedMessages([named[key] for key in self.floats], at, factors)
        if self.floats and self.add_up is not None:
            self._wait(rows)
        elif self.floats:
            self._add_one_by_one(rows)
        for key in self.whole:
            self.total[key] += named[key].long().sum(0)

    def _add_one_by_one(self, rows: StackedMessages) -> None:
        """Two launches for all tensors of a client instead of two for each."""
        self._wide = self._wide or [torch.empty_like(self.total[key]) for key in self.floats]
        for i, factor in zip(rows.at, rows.factors):
            torch._foreach_copy_(self._wide, [t[i] for t in rows.tensors])
            torch._foreach_add_([self.total[key] for key in self.floats], self._wide, alpha=factor)

    def finish(self, mean: bool) -> Any:
        """The sum or the weighted mean; a mean of integers has no meaning and is the first client's value."""
        self._catch_up()
        kinds = self.kinds.items()
        done = {key: torch.empty(shape, dtype=kind, device=self.total[key].device) for key, (kind, shape) in kinds}
        floats, whole = ([self.total[key] for key in names] for names in (self.floats, self.whole))
        if floats and mean:
            floats = list(torch._foreach_div(floats, self.weight))
        for names, total in ((self.floats, floats), (self.whole, whole)):  # a launch for all of a kind
            if total:
                torch._foreach_copy_([done[key] for key in names], total)
        done |= self.whole if mean else {}
        return done[""] if self.single else done

    def _check(self, named: State) -> None:
        """A kernel reads as many numbers of a message as the sum has."""
        for key, (dtype, shape) in self.kinds.items():
            found = named.get(key)
            if found is None or found.shape[1:] != shape or found.dtype != dtype:
                raise UserError(
                    f"artefact {self.name}: expected {key or 'a tensor'} of every client to be {dtype} "
                    f"{list(shape)} as the first client's, found {_like(found)}; sums and means need that, "
                    "reduce='each' does not"
                )

    def _wait(self, rows: StackedMessages) -> None:
        self._waiting.append(rows)
        if sum(len(each.at) for each in self._waiting) * self.size > WAITING:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._waiting and self.add_up is not None:
            self.add_up([self.total[key] for key in self.floats], self._waiting)
        self._waiting = []


def _like(t: Tensor | None) -> str:
    return "none" if t is None else f"{t.dtype} {list(t.shape[1:])}"


def _zeros(like: State) -> State:
    """Zeros to add tensors such as these to, those of a kind made together: one launch, not one for each."""
    found: State = {}
    for kind in (torch.float64, torch.int64):
        mine = {k: t for k, t in like.items() if t.is_floating_point() == kind.is_floating_point}
        if mine:
            device = next(iter(mine.values())).device
            parts = torch.zeros(sum(t.numel() for t in mine.values()), dtype=kind, device=device)
            split = torch.split(parts, [t.numel() for t in mine.values()])
            found |= {k: part.view(t.shape) for (k, t), part in zip(mine.items(), split)}
    return {k: found[k] for k in like}
