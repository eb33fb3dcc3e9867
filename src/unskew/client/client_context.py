"""What a client computes with: the method of a round, the model, its rows, its draws and its first state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from unskew.base.tree import Tree, tree_map
from unskew.client.client_rows import ClientRows
from unskew.client.plan import Plan
from unskew.client.round import PRIVATE
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts, Newcomer
from unskew.protocol.method import Method, Task
from unskew.protocol.part import Part, Sizes
from unskew.protocol.work import Work


def unchanged(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class ClientContext:
    """What clients are made of: all of it fixed for the run."""

    method: Method
    model: Model
    task: Task
    plan: Plan
    client_rows: ClientRows
    device: torch.device
    dtype: torch.dtype
    layout: Callable[[Tensor], Tensor] = unchanged  # memory layout of the rows that one client's step takes

    def at_round(self, round: int) -> tuple[Method, Work]:
        """Parts and work of a round, with numbers as numbers: for draws and streams, which are made on the host."""
        known = self._rounds
        if round not in known:
            if len(known) > 1:  # this round and the one that is made ready meanwhile: every client of a loop asks
                known.pop(min(known))
            known[round] = self.method.at_round(max(round, 1), self.task)
        return known[round]

    def at_round_on_device(self, round: int) -> tuple[Method, Work]:
        """The same with float fields as tensors on the device: for what a step computes; a GPU is waited for."""
        method, work = self.at_round(round)
        if round not in self._rounds_on_device:
            self._rounds_on_device.clear()
            self._rounds_on_device[round] = method.on(self.device, self.dtype)
        return self._rounds_on_device[round], work

    @cached_property
    def _rounds(self) -> dict[int, tuple[Method, Work]]:
        return {}

    @cached_property
    def _rounds_on_device(self) -> dict[int, Method]:
        return {}

    @property
    def after_training(self) -> list[str]:
        """Parts that share something right after a client's training."""
        return [p.name for p in self.method.parts if p.exchange is not None and p.exchange.when == "after training"]

    def newcomer(self, client: int, client_rows: ClientRows | None = None) -> Tree:
        """State of a client that has none yet."""
        if not self._stateful and not self.model.private:  # asked for every client of every round
            return {}
        client_rows = client_rows or self.client_rows
        return self.first_state(client, lambda: client_rows.facts(client), len(client_rows.index[client]))

    def first_state(self, client: int, facts_of: Callable[[], ClientFacts], rows: int) -> Tree:
        """State of a client with so many rows that has none yet; facts are asked for only where a part keeps state."""
        tree: Tree = {}
        if self.model.private:
            tree[PRIVATE] = {name: self._there(self.model.initial[name]) for name in self.model.private}
        if not self._stateful:
            return tree
        facts, sizes = facts_of(), Sizes(rows, 0, self.task.work.batch, self.task.classes, {})
        for part in self._stateful:
            draws = self.plan.part_draws(part, "init", 0, client, sizes)
            state = part.client_init(self.model, Newcomer(client, facts, draws))
            if state:
                tree[part.name] = tree_map(self._there, state)
        return tree

    @cached_property
    def _stateful(self) -> list[Part]:
        return [part for part in self.method.parts if type(part).client_init is not Part.client_init]

    def _there(self, tensor: Tensor) -> Tensor:
        """A newcomer's tensor on the device; what is the model's start is moved once for all of them."""
        return self._start[id(tensor)] if id(tensor) in self._start else tensor.to(self.device)

    @cached_property
    def _start(self) -> dict[int, Tensor]:
        return {id(tensor): tensor.to(self.device) for tensor in self.model.initial.values()}
