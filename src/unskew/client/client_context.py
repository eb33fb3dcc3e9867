"""Everything a client needs for a round: the method, the model, its rows, its random draws and its initial state."""

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


def identity(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class ClientContext:
    """The run's method, model, data, plan and device; fixed for the run and the same for all clients."""

    method: Method
    model: Model
    task: Task
    plan: Plan
    client_rows: ClientRows
    device: torch.device
    dtype: torch.dtype
    layout: Callable[[Tensor], Tensor] = identity  # sets the memory layout (channels_last) of a single client's batches

    def at_round(self, round: int) -> tuple[Method, Work]:
        """Parts and work of a round, with Python numbers as fields: for draws and streams, made on the CPU."""
        cache = self._rounds
        if round not in cache:
            if len(cache) > 1:  # every client asks for the current round, and prefetching for the next one
                cache.pop(min(cache))
            cache[round] = self.method.at_round(max(round, 1), self.task)
        return cache[round]

    def at_round_on_device(self, round: int) -> tuple[Method, Work]:
        """The same with float fields as tensors on the device, for use inside a step; the copy synchronises a GPU."""
        method, work = self.at_round(round)
        if round not in self._rounds_on_device:
            self._rounds_on_device.clear()
            self._rounds_on_device[round] = method.with_tensor_fields(self.device, self.dtype)
        return self._rounds_on_device[round], work

    @cached_property
    def _rounds(self) -> dict[int, tuple[Method, Work]]:
        return {}

    @cached_property
    def _rounds_on_device(self) -> dict[int, Method]:
        return {}

    @property
    def after_training_parts(self) -> list[str]:
        """Names of the parts whose exchange runs right after a client's training."""
        return [p.name for p in self.method.parts if p.exchange is not None and p.exchange.when == "after training"]

    def newcomer_state(self, client: int, client_rows: ClientRows | None = None) -> Tree:
        """Initial state of a client that has none yet."""
        if not self._stateful_parts and not self.model.private:  # fast path: called for every client in every round
            return {}
        client_rows = client_rows or self.client_rows
        return self.initial_state(client, lambda: client_rows.facts(client), len(client_rows.index[client]))

    def initial_state(self, client: int, facts_of: Callable[[], ClientFacts], rows: int) -> Tree:
        """Initial state of a client with that many rows; `facts_of` is called only if a part keeps client state."""
        tree: Tree = {}
        if self.model.private:
            tree[PRIVATE] = {name: self._to_device(self.model.initial[name]) for name in self.model.private}
        if not self._stateful_parts:
            return tree
        facts, sizes = facts_of(), Sizes(rows, 0, self.task.work.batch, self.task.classes, {})
        for part in self._stateful_parts:
            draws = self.plan.part_draws(part, "init", 0, client, sizes)
            state = part.client_init(self.model, Newcomer(client, facts, draws))
            if state:
                tree[part.name] = tree_map(self._to_device, state)
        return tree

    @cached_property
    def _stateful_parts(self) -> list[Part]:
        return [part for part in self.method.parts if type(part).client_init is not Part.client_init]

    def _to_device(self, tensor: Tensor) -> Tensor:
        """A newcomer's tensor on the device; the initial model's tensors are moved only once for all clients."""
        return self._initial_on_device[id(tensor)] if id(tensor) in self._initial_on_device else tensor.to(self.device)

    @cached_property
    def _initial_on_device(self) -> dict[int, Tensor]:
        return {id(tensor): tensor.to(self.device) for tensor in self.model.initial.values()}
