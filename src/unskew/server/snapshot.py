"""What the server remembers between rounds, and what a round tells the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from unskew.base.tree import State, Tree, flatten
from unskew.wire.ledger import Ledger


@dataclass(frozen=True)
class Snapshot:
    """Everything a run remembers between rounds, besides the clients' state."""

    round: int
    model: State
    parts: Tree
    seen: frozenset[int]  # clients that have taken part
    ledger: Ledger
    met: dict[str, frozenset[int]] = field(default_factory=dict)  # part -> whose answer its newcomers' exchange has
    sampled: frozenset[int] = frozenset()  # clients that this round asked
    answered: frozenset[int] = frozenset()  # those whose reply was taken in
    absent: frozenset[int] = frozenset()  # clients that could not be reached, or were sampled and did not answer

    def versions(self) -> dict[tuple[str, str], int]:
        """How often each of its tensors was written to, by part and name."""
        held = {"the model's": self.model} | self.parts
        return {(part, name): t._version for part, state in held.items() for name, t in flatten(state).items()}


class Refusal(NamedTuple):
    """A reply that was not used, and why; client -1 if there is no such client."""

    client: int
    phase: str
    reason: str


@dataclass
class RoundReport:
    """What a round tells the runner: loss terms of each client, what was refused, and numbers about the server."""

    terms: dict[int, dict[str, float]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)  # clients that were asked and whose reply was refused
    below_quorum: bool = False  # too few answers: the model stayed as it was
    answered: set[int] = field(default_factory=set)  # clients whose training was taken in

    def clear(self) -> None:
        """Forget an attempt at the round."""
        for kept in (self.terms, self.refused, self.dropped, self.numbers, self.answered):
            kept.clear()
        self.below_quorum = False

    numbers: dict[str, float] = field(default_factory=dict)  # part/name
