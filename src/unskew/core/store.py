"""Client state between rounds: lazy (no entry means `client_init`), and only the runner writes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from unskew.core.state import Tree, tree_map


@dataclass
class ClientStore:
    """Entries of the clients that were ever trained; a round's changes wait until the round is complete."""

    fresh: Callable[[int], Tree]  # state of a client without an entry
    home: torch.device  # where entries rest: the GPU if all would fit, else the host
    entries: dict[int, Tree] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)  # since the last checkpoint
    pending: dict[int, Tree] = field(default_factory=dict)

    def get(self, client: int) -> Tree:
        """State by part, including this round's changes."""
        if client in self.pending:
            return self.pending[client]
        return self.entries[client] if client in self.entries else self.fresh(client)

    def put(self, client: int, tree: Tree) -> None:
        """New state, kept when the round commits. Stateless methods keep nothing."""
        if tree:
            self.pending[client] = tree_map(lambda t: _own(t.detach().to(self.home)), tree)

    def commit(self) -> None:
        """The round is complete: its changes become the entries."""
        self.entries |= self.pending
        self.changed |= self.pending.keys()
        self.pending = {}

    def rollback(self) -> None:
        """The round did not complete: forget its changes."""
        self.pending = {}


def _own(t: Tensor) -> Tensor:
    """A tensor with memory of its own: one client's row of a stack would keep the whole stack alive."""
    return t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
