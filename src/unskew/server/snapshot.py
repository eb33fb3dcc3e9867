"""The server's state between rounds, and the report of a round to the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from unskew.base.tree import State, Tree, flatten
from unskew.wire.ledger import Ledger


@dataclass(frozen=True)
class Snapshot:
    """Everything a run keeps between rounds, except the clients' state."""

    round: int
    model: State
    parts: Tree  # the server's state of each part
    seen: frozenset[int]  # clients that answered in some round
    ledger: Ledger
    newcomers_met: dict[str, frozenset[int]] = field(default_factory=dict)  # part -> clients that are not new to it
    sampled: frozenset[int] = frozenset()  # clients that were asked in this round
    answered: frozenset[int] = frozenset()  # clients whose reply was accepted
    absent: frozenset[int] = frozenset()  # clients that could not be reached, or were sampled and did not answer

    def versions(self) -> dict[tuple[str, str], int]:
        """The version counter of each tensor, by part and name: it counts in-place writes."""
        states = {"the model's": self.model} | self.parts
        return {(part, name): t._version for part, state in states.items() for name, t in flatten(state).items()}


class Refusal(NamedTuple):
    """A refused reply and the reason; client -1 if there is no such client."""

    client: int
    phase: str
    reason: str


@dataclass
class RoundReport:
    """The report of a round to the runner: loss terms of each client, refusals, and numbers about the server."""

    terms: dict[int, dict[str, float]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    refused_clients: list[int] = field(default_factory=list)  # asked clients whose reply was refused
    below_quorum: bool = False  # too few answers: the model stayed as it was
    answered: set[int] = field(default_factory=set)  # clients whose training was accepted
    numbers: dict[str, float] = field(default_factory=dict)  # part/name

    def clear(self) -> None:
        """Discard an attempt at the round."""
        for collection in (self.terms, self.refused, self.refused_clients, self.numbers, self.answered):
            collection.clear()
        self.below_quorum = False
