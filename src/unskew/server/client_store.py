"""Client state between rounds: lazy (no entry means `client_init`), and only the runner writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from unskew.base.tree import Tree
from unskew.server.storage import Storage, StoredState


@dataclass
class ClientStore:
    """Entries of the clients that were ever trained; a round's changes wait until the round is complete."""

    fresh: Callable[[int], Tree]  # state of a client without an entry
    storage: Storage  # where entries rest
    changed: set[int] = field(default_factory=set)  # since the last checkpoint
    _kept: dict[int, StoredState] = field(default_factory=dict)
    _pending: dict[int, StoredState] = field(default_factory=dict)

    @property
    def entries(self) -> Mapping[int, Tree]:
        """The state of complete rounds."""
        return _Entries(self._kept)

    def get(self, client: int) -> Tree:
        """State by part, including this round's changes."""
        kept = self._pending.get(client) or self._kept.get(client)
        return kept.tree() if kept else self.fresh(client)

    def put(self, client: int, tree: Tree) -> None:
        """New state, kept when the round commits. Stateless methods keep nothing."""
        if tree:
            self._pending[client] = self.storage.keep(tree)

    def restore(self, client: int, tree: Tree) -> None:
        """An entry of a checkpoint."""
        self._kept[client] = self.storage.keep(tree)

    def mark(self) -> dict[int, StoredState]:
        """This round's changes so far."""
        return dict(self._pending)

    def back_to(self, mark: dict[int, StoredState]) -> None:
        """Forget the changes since the mark."""
        self._pending = dict(mark)

    def commit(self) -> None:
        """The round is complete: its changes become the entries."""
        self._kept |= self._pending
        self.changed |= self._pending.keys()
        self._pending = {}

    def rollback(self) -> None:
        """The round did not complete: forget its changes."""
        self._pending = {}

    def close(self) -> None:
        """The run is over."""
        self.storage.close()


class _Entries(Mapping[int, Tree]):
    def __init__(self, kept: dict[int, StoredState]) -> None:
        self._kept = kept

    def __getitem__(self, client: int) -> Tree:
        return self._kept[client].tree()

    def __contains__(self, client: object) -> bool:  # the inherited one would read the file
        return client in self._kept

    def __iter__(self) -> Iterator[int]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)
