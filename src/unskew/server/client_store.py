"""Client state between rounds: lazy (no entry means `client_init`), and only the runner writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from unskew.base.tree import Tree
from unskew.server.storage import Storage, StoredState


@dataclass
class ClientStore:
    """States of the clients that were ever trained; a round's changes wait until the round is complete."""

    initial_state: Callable[[int], Tree]  # state of a client without an entry
    storage: Storage
    changed: set[int] = field(default_factory=set)  # clients whose entry changed since the last checkpoint
    _committed: dict[int, StoredState] = field(default_factory=dict)
    _pending: dict[int, StoredState] = field(default_factory=dict)

    @property
    def entries(self) -> Mapping[int, Tree]:
        """The state after the last complete round."""
        return _Entries(self._committed)

    def get(self, client: int) -> Tree:
        """State by part, including this round's changes."""
        stored = self._pending.get(client) or self._committed.get(client)
        return stored.tree() if stored else self.initial_state(client)

    def put(self, client: int, tree: Tree) -> None:
        """Replace a client's state once the round commits. An empty state is not stored."""
        if tree:
            self._pending[client] = self.storage.store(tree)

    def restore(self, client: int, tree: Tree) -> None:
        """Add an entry of a checkpoint."""
        self._committed[client] = self.storage.store(tree)

    def savepoint(self) -> dict[int, StoredState]:
        """This round's changes so far, for `rollback_to`."""
        return dict(self._pending)

    def rollback_to(self, savepoint: dict[int, StoredState]) -> None:
        """Discard the changes since the savepoint."""
        self._pending = dict(savepoint)

    def commit(self) -> None:
        """The round is complete: its changes become the entries."""
        self._committed |= self._pending
        self.changed |= self._pending.keys()
        self._pending = {}

    def rollback(self) -> None:
        """The round did not complete: discard its changes."""
        self._pending = {}

    def close(self) -> None:
        """Release the storage at the end of the run."""
        self.storage.close()


class _Entries(Mapping[int, Tree]):
    def __init__(self, stored: dict[int, StoredState]) -> None:
        self._stored = stored

    def __getitem__(self, client: int) -> Tree:
        return self._stored[client].tree()

    def __contains__(self, client: object) -> bool:  # the inherited one would read the file
        return client in self._stored

    def __iter__(self) -> Iterator[int]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)
