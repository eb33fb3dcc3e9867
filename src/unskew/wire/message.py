"""What crosses the wall: the server's model and broadcasts go down, replies of one client or of a cohort come up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from unskew.base.tree import Message, Rows, State, Tree, unstack


class Received(NamedTuple):
    """What the server sent: the model, and each part's broadcasts."""

    model: State
    parts: dict[str, dict[str, Any]]


class ClientReply(NamedTuple):
    """What one client's round gave."""

    client: int
    message: Message
    mine: Tree
    terms: State
    shared: Message = {}  # what exchanges after training sent; never changed in place
    finite: bool | None = None  # True where the engine answers for it, at the latest in `verify_finite`; None: look


@dataclass(frozen=True)
class CohortReply:
    """What the rounds of a cohort gave: trees with a leading axis, whose row at[i] is that of clients[i]."""

    clients: list[int]
    at: list[int]  # all rows of the stack, in the order of the clients
    message: Message
    mine: Tree
    terms: State
    shared: Message = field(default_factory=dict)
    finite: Sequence[bool | None] = ()  # of each row; empty where the engine answers for all of them

    @property
    def alike(self) -> bool:
        """Whether nothing has to be seen client by client: rows of padding, exchanges, numbers that are not finite."""
        values = (value for sent in self.message.values() for value in sent.values())
        return not self.shared and not self.finite and not any(isinstance(value, Rows) for value in values)

    def ordered(self, clients: list[int]) -> CohortReply:
        """The same clients in another order."""
        place = dict(zip(self.clients, self.at))
        return replace(self, clients=clients, at=[place[k] for k in clients])

    def each(self) -> list[ClientReply]:
        """One by one, in the order of the clients."""
        m = len(self.clients)
        said, kept, terms, shared = (unstack(tree, m) for tree in (self.message, self.mine, self.terms, self.shared))
        fine = self.finite or [True] * m
        return [ClientReply(k, said[i], kept[i], terms[i], shared[i], fine[i]) for k, i in zip(self.clients, self.at)]


class LossTerms(NamedTuple):
    """Loss terms [m] of some clients; row at[i] is that of clients[i]."""

    clients: list[int]
    at: list[int]
    values: State

    def in_order_of(self, parts: list[str]) -> LossTerms:
        """A part's term, then the numbers beside it, in the order of the parts."""
        places = {name: (parts.index(name.partition(" ")[0]), name) for name in self.values}
        return self._replace(values={name: self.values[name] for name in sorted(places, key=places.__getitem__)})


def replies_one_by_one(found: Iterable[ClientReply | CohortReply]) -> Iterator[ClientReply]:
    """Every client's outcome, in the order of the clients."""
    for some in found:
        yield from some.each() if isinstance(some, CohortReply) else (some,)
