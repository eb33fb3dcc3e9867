"""What the server remembers between rounds, and what a round tells the run."""

from __future__ import annotations

from dataclasses import dataclass, field

from unskew.base.tree import State, Tree
from unskew.wire.ledger import Ledger


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
