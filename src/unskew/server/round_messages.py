"""The messages of a round as the server keeps them: added up as declared, in the order of the clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from unskew.base.tree import Message, Value, tree_map, unstack
from unskew.engines.engine import AddUp
from unskew.protocol.part import Artefact, check_declared
from unskew.server.sums import Sum


def is_finite(message: Message) -> bool:
    """Whether every number of a message is finite."""
    tensors = [t for t in torch.utils._pytree.tree_leaves(message) if t.is_floating_point()]
    if not tensors:
        return True
    # A finite sum proves that all numbers are finite, in a tenth of the time; a non-finite one may be an overflow.
    if bool(torch.isfinite(torch.stack([t.sum().double() for t in tensors])).all()):
        return True
    return all(bool(torch.isfinite(t).all()) for t in tensors)


@dataclass
class PartMessages:
    """One part's messages of a round."""

    clients: list[int] = field(default_factory=list)
    add_up: AddUp | None = None
    _rows: dict[int, int] = field(default_factory=dict)  # number of training rows by client
    _sums: dict[str, Sum] = field(default_factory=dict)
    _each: dict[str, list[tuple[int, Value]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.clients)

    def __contains__(self, name: str) -> bool:
        return name in self._sums or name in self._each

    def mean(self, name: str) -> Any:
        """Weighted mean over the clients that sent it; integers take the first client's value."""
        return self._sums[name].finish(mean=True)

    def sum(self, name: str) -> Any:
        """Unweighted sum over clients."""
        return self._sums[name].finish(mean=False)

    def each(self, name: str) -> list[tuple[int, Any]]:
        """(client, value), in the order of the clients."""
        return self._each.get(name, [])

    def rows_of(self, client: int) -> int:
        """The number of training rows that the client reported; of a stand-in the number given with it."""
        return self._rows[client]

    def rows(self, name: str) -> Tensor:
        """All clients' rows, one after another."""
        return torch.cat([value for _, value in self.each(name)])

    def add_rows(
        self,
        clients: list[int],
        counts: list[int],
        weights: list[float],
        sent: dict[str, Value],
        rows_at: list[int],
        declared: dict[str, Artefact],
    ) -> None:
        """Add artefacts with a leading axis, whose row rows_at[i] is that of clients[i]."""
        self.clients += clients
        self._rows.update(zip(clients, counts))
        for name, value in sent.items():
            reduce = declared[name].reduce
            if reduce in ("each", "rows"):
                rows = unstack(value, len(rows_at))
                self._each.setdefault(name, []).extend((k, rows[i]) for k, i in zip(clients, rows_at))
                continue
            if name not in self._sums:
                self._sums[name] = Sum.like(name, tree_map(lambda t: t[rows_at[0]], value), self.add_up)
            self._sums[name].add_rows(value, rows_at, weights if reduce == "mean" else [1.0] * len(rows_at))


class RoundMessages:
    """All parts' messages of a round, added up as they are declared."""

    def __init__(
        self, declared: dict[str, dict[str, Artefact]], weigh_by_rows: bool, add_up: AddUp | None = None
    ) -> None:
        self._declared, self._weigh_by_rows = declared, weigh_by_rows
        self._parts: dict[str, PartMessages] = {name: PartMessages(add_up=add_up) for name in declared}
        self.clients: list[int] = []

    def add(self, client: int, rows: int, message: Message) -> None:
        """Add one client's message."""
        self.add_rows([client], [rows], tree_map(lambda t: t[None], message), [0])

    def add_rows(self, clients: list[int], rows: list[int], message: Message, rows_at: list[int]) -> None:
        """Add messages with a leading axis, all of them finite, whose row rows_at[i] is that of clients[i]."""
        self.clients += clients
        weights = [float(n) if self._weigh_by_rows else 1.0 for n in rows]
        for part, sent in message.items():
            self._parts[part].add_rows(clients, rows, weights, sent, rows_at, self._declared[part])

    def of(self, part: str) -> PartMessages:
        """One part's messages."""
        return self._parts[part]


def in_declared_order(message: Message, declared: dict[str, dict[str, Artefact]]) -> Message:
    """The message in the order of the declarations, which crossing a process may change. Refuses undeclared names."""
    for part, sent in message.items():
        check_declared(part, declared.get(part, {}), sent, "up or share")
    return {
        part: {name: message[part][name] for name in names if name in message[part]}
        for part, names in declared.items()
        if part in message
    }
