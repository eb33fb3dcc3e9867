"""What a part's hooks see of the server: its model, the part's state, the messages of a round, and stand-ins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from unskew.base.tree import PartState, State
from unskew.models.model import Model
from unskew.protocol.method import Task


class Messages(Protocol):
    """One part's messages of a round, reduced as its artefacts declare."""

    clients: list[int]

    def __bool__(self) -> bool: ...

    def __contains__(self, name: str) -> bool: ...

    def mean(self, name: str) -> Any:
        """Weighted mean over the clients that sent the artefact; integer tensors take the first client's value."""
        ...

    def sum(self, name: str) -> Any:
        """Plain sum over clients."""
        ...

    def each(self, name: str) -> list[tuple[int, Any]]:
        """(client, value) pairs, in the order of the clients."""
        ...

    def rows_of(self, client: int) -> int:
        """The number of training rows that a client reported."""
        ...

    def rows(self, name: str) -> Tensor:
        """All clients' rows, concatenated."""
        ...


@dataclass(frozen=True)
class StandIn:
    """Rows that train in place of an absent client: x [n, ...] as model input, y [n] or [n, classes]."""

    x: Tensor
    y: Tensor
    rows: int  # the weight of its reply in the mean, as a number of rows
    more: dict[str, Tensor] = field(default_factory=dict)  # further columns, see `Batch.more`


@dataclass(frozen=True)
class Server:
    """The server, as one part sees it. Hooks return a changed copy: `server.replace(model=...)`."""

    model: State  # the global model's tensors
    part_state: PartState  # the server's state of this part
    round: int
    net: Model  # the architecture
    task: Task
    generator: Callable[..., np.random.Generator]  # a fresh generator for a key, as in generator("shuffle")

    def replace(self, **changes: Any) -> Server:
        """A copy of the server with these fields changed."""
        if "mine" in changes:  # the old name of `part_state`, for one version
            changes["part_state"] = changes.pop("mine")
        return replace(self, **changes)

    mine = property(lambda self: self.part_state)  # the old name, for one version
