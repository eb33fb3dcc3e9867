"""What a part's hooks see of a client: when it is new, at the end of its round, and in an exchange (`share`)."""

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
    """A client's number of rows [] and label counts [classes], and what parts derive from the counts."""

    rows: Tensor
    counts: Tensor
    label_stats: dict[str, State] = {}  # each part's `label_stats`, by part name


@dataclass(frozen=True)
class End:
    """The end of a client's round, as a part's `up` sees it."""

    start: State  # the received model
    final: State  # the model after local training
    part_state: PartState  # this client's state of this part
    received: dict[str, Any]  # this part's broadcasts
    facts: ClientFacts
    steps: Tensor
    effective_steps: Tensor  # a_k, see `Work.effective_steps`
    lr: Tensor
    parameters: tuple[str, ...]  # names of the trained tensors, without those that stay private to the client

    mine = property(lambda self: self.part_state)  # the old name, for one version

    @property
    def update(self) -> State:
        """final - start, for the trained tensors."""
        return {name: self.final[name] - self.start[name] for name in self.parameters}


@dataclass(frozen=True)
class Newcomer:
    """A client that has no state yet, as a part's `client_init` sees it."""

    id: int
    facts: ClientFacts
    draws: State  # this part's "init" draws


@dataclass(frozen=True)
class Client:
    """A client outside training, as a part's `share` sees it: its rows on demand, the current model in eval mode."""

    model: Model
    state: State  # the model's tensors; empty with Exchange(model=False)
    part_state: PartState
    draws: State  # this part's "init" and "share" draws
    facts: ClientFacts
    _x: Tensor  # rows of all clients
    _y: Tensor
    _index: Tensor  # [n] positions of this client's rows in _x and _y; padding is -1
    _prepare: Any  # raw rows -> model inputs

    mine = property(lambda self: self.part_state)  # the old name, for one version

    def rows(self, pick: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x, y and keep [p] of the rows at positions `pick` [p]; keep is False at -1 and at positions past the end."""
        pick, last = pick.to(self._index.device), len(self._index) - 1
        index = self._index[pick.clamp(0, last)]
        return self._prepare(self._x[index]), self._y[index], (pick >= 0) & (pick <= last) & (index >= 0)

    @property
    def positions(self) -> Tensor:
        """All positions of the client's rows; -1 where it is padded to the cohort's longest client."""
        n = torch.arange(len(self._index), device=self._index.device)
        return torch.where(self._index >= 0, n, -1)

    def at(self, x: Tensor, cut: int) -> Tensor:
        """The current model's output after its first `cut` blocks."""
        if not self.state:
            raise UserError("share() uses the model, but its Exchange has model=False; set model=True")
        return FrozenModel(self.model, self.state, x).at(cut)
