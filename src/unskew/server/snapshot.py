"""What the server remembers, and how a part sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor

from unskew.base.tree import State, Tree
from unskew.models.model import Model
from unskew.protocol.method import Task
from unskew.wire.ledger import Ledger


@dataclass(frozen=True)
class StandIn:
    """Rows that train for an absent client: x [n, ...] ready for the model, y [n] or [n, classes]; `rows` weighs it."""

    x: Tensor
    y: Tensor
    rows: int
    more: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """The server as one part sees it; hooks return a changed copy (`replace`)."""

    model: State
    mine: State
    round: int
    net: Model
    task: Task
    generator: Callable[..., np.random.Generator]  # keyed draws: generator("shuffle")

    def replace(self, **changes: Any) -> Server:
        return replace(self, **changes)


@dataclass(frozen=True)
class Snapshot:
    """Everything a run remembers between rounds, besides the clients' state."""

    round: int
    model: State
    parts: Tree
    seen: frozenset[int]  # clients that have taken part
    ledger: Ledger

    def versions(self) -> dict[tuple[str, str], int]:
        """How often each of its tensors was written to, by part and name."""
        held = {"the model's": self.model} | self.parts
        return {(part, name): t._version for part, state in held.items() for name, t in state.items()}


@dataclass(frozen=True)
class Report:
    """What a round tells the runner: loss terms of each client, who was dropped, and numbers about the server."""

    terms: dict[int, dict[str, float]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)  # part/name
