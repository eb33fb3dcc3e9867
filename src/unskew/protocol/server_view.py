"""What a part's hooks see of the server: its model, their own state, the messages of a round, and stand-ins."""

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
    """One part's messages of a round, added up as the part declares them."""

    clients: list[int]

    def __bool__(self) -> bool: ...

    def __contains__(self, name: str) -> bool: ...

    def mean(self, name: str) -> Any:
        """Weighted mean over the clients that sent it; integers take the first client's value."""
        ...

    def sum(self, name: str) -> Any:
        """Plain sum over clients."""
        ...

    def each(self, name: str) -> list[tuple[int, Any]]:
        """(client, value), in the order of the clients."""
        ...

    def rows(self, name: str) -> Tensor:
        """All clients' rows, one after another."""
        ...


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
    part_state: PartState
    round: int
    net: Model
    task: Task
    generator: Callable[..., np.random.Generator]  # keyed draws: generator("shuffle")

    def replace(self, **changes: Any) -> Server:
        """A copy of the server with these fields changed."""
        if "mine" in changes:  # the old name of `part_state`, for one version
            changes["part_state"] = changes.pop("mine")
        return replace(self, **changes)

    mine = property(lambda self: self.part_state)  # the old name, for one version
