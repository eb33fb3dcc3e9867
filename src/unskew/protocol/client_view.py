"""What a part's hooks see of a client: when it is new, at the end of its round, and in an exchange outside training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.tree import PartState, State
from unskew.models.model import Model
from unskew.protocol.step_view import FrozenModel


class ClientFacts(NamedTuple):
    """What a client knows of itself, as tensors: number of rows [], label counts [classes], what parts make of them."""

    rows: Tensor
    counts: Tensor
    label_stats: dict[str, State] = {}  # by part


@dataclass(frozen=True)
class End:
    """A client's round as a part's `up` sees it."""

    start: State
    final: State
    part_state: PartState
    received: dict[str, Any]
    facts: ClientFacts
    steps: Tensor
    effective_steps: Tensor  # a_k
    lr: Tensor
    parameters: tuple[str, ...]  # names of the trained tensors that are not the client's own

    mine = property(lambda self: self.part_state)  # the old name, for one version

    @property
    def update(self) -> State:
        """final - start, of the trained tensors."""
        return {name: self.final[name] - self.start[name] for name in self.parameters}


@dataclass(frozen=True)
class Newcomer:
    """A client that has no state yet."""

    id: int
    facts: ClientFacts
    draws: State


@dataclass(frozen=True)
class Client:
    """A client outside training, as `share` sees it: its rows on demand, the current model in eval mode."""

    model: Model
    state: State
    part_state: PartState
    draws: State
    facts: ClientFacts
    _x: Tensor  # rows of all clients
    _y: Tensor
    _index: Tensor  # [n] where this client's rows are; -1 pads
    _prepare: Any

    mine = property(lambda self: self.part_state)  # the old name, for one version

    def rows(self, pick: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and keep of the picked positions [p]; -1, and a position beyond the client's rows, pick nothing."""
        pick, last = pick.to(self._index.device), len(self._index) - 1
        where = self._index[pick.clamp(0, last)]
        return self._prepare(self._x[where]), self._y[where], (pick >= 0) & (pick <= last) & (where >= 0)

    @property
    def positions(self) -> Tensor:
        """All positions, -1 where another client of the cohort has more rows."""
        n = torch.arange(len(self._index), device=self._index.device)
        return torch.where(self._index >= 0, n, -1)

    def at(self, x: Tensor, cut: int) -> Tensor:
        """The current model's output at a cut."""
        if not self.state:
            raise UserError("share() looks at the model, which its Exchange(model=False) does not send; set model=True")
        return FrozenModel(self.model, self.state, x).at(cut)
