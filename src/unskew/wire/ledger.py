"""Everything sent in one round: an entry per artefact with client, direction, kind and bytes; its value if recorded.

Also the run's total bytes, and which clients already hold a broadcast that is sent again only when it has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unskew.base.tree import Value, as_state, size_in_bytes
from unskew.protocol.part import Artefact

REFUSED = "refused"  # kind of the entry of a refused reply; its `artefact` is the reason


class LedgerEntry(NamedTuple):
    """One artefact of one client in one direction."""

    round: int
    phase: str
    client: int
    direction: str  # up: client to server; down: server to client
    part: str
    artefact: str
    kind: str
    bytes: int


class LedgerMessage(NamedTuple):
    """An entry with its value: exactly what an observer of the connection would see."""

    entry: LedgerEntry
    reduce: str  # the artefact's `reduce`
    value: Value


RecordFilter = Callable[[int, int], bool]  # (round, client) -> whether to record the values, not only their bytes


def record_no_values(round: int, client: int) -> bool:
    return False


@dataclass
class Ledger:
    """Entries of one round, the run's totals, and which clients hold a copy of which lasting artefact.

    Messages are recorded only here, so no record can hold more than the ledger lists.
    """

    entries: list[LedgerEntry] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    # part/artefact -> the fingerprint of the lasting value that was sent last, and the clients that hold it
    holders: dict[str, dict[str, list[int] | str]] = field(default_factory=dict)
    should_record: RecordFilter = record_no_values
    recorded: list[LedgerMessage] = field(default_factory=list)

    def log_up(
        self, round: int, phase: str, client: int, part: str, name: str, artefact: Artefact, value: Value
    ) -> None:
        """A client sent an artefact."""
        entry = LedgerEntry(round, phase, client, "up", part, name, artefact.kind, size_in_bytes(value))
        self.bytes_up += entry.bytes
        self._add([entry], artefact, value)

    def log_up_many(
        self, round: int, phase: str, clients: Iterable[int], columns: Sequence[tuple[str, str, str, int]]
    ) -> None:
        """Several clients sent the same artefacts, each (part, name, kind, bytes); their values are not recorded."""
        new = [LedgerEntry(round, phase, k, "up", *column) for k in clients for column in columns]
        self.entries += new
        self.bytes_up += sum(entry.bytes for entry in new)

    def log_refusal(self, round: int, phase: str, client: int, reason: str, bytes: int) -> None:
        """A reply was refused for a reason; `bytes` counts its content unless other entries list it."""
        self.entries.append(LedgerEntry(round, phase, client, "up", "", reason, REFUSED, bytes))
        self.bytes_up += bytes

    def log_down(
        self, round: int, phase: str, clients: Iterable[int], part: str, name: str, artefact: Artefact, value: Value
    ) -> None:
        """The server sent the same artefact to several clients; a lasting one only to those without a current copy."""
        receivers = self._add_holders(f"{part}/{name}", clients, value) if artefact.lasting else clients
        kind, size = artefact.kind, size_in_bytes(value)
        new = [LedgerEntry(round, phase, k, "down", part, name, kind, size) for k in receivers]
        self.bytes_down += size * len(new)
        self._add(new, artefact, value)

    def _add(self, new: list[LedgerEntry], artefact: Artefact, value: Value) -> None:
        self.entries += new
        self.recorded += [
            LedgerMessage(entry, artefact.reduce, value)
            for entry in new
            if self.should_record(entry.round, entry.client)
        ]

    def _add_holders(self, name: str, clients: Iterable[int], value: Value) -> list[int]:
        """The clients that do not hold this value yet; from now on they do."""
        digest = fingerprint(value)
        record = self.holders.get(name)
        if record is None or record["fingerprint"] != digest:
            record = self.holders[name] = {"fingerprint": digest, "clients": []}
        holders = record["clients"]
        receivers = [k for k in clients if k not in holders]
        record["clients"] = sorted([*holders, *receivers])
        return receivers

    def for_next_round(self, should_record: RecordFilter = record_no_values) -> Ledger:
        """A new ledger without entries that continues the totals; this one is not changed."""
        return Ledger([], self.bytes_up, self.bytes_down, {k: dict(v) for k, v in self.holders.items()}, should_record)


@lru_cache(maxsize=4096)  # many clients have equally many rows
def row_count_tensor(rows: int) -> Tensor:
    """A client's number of rows, as the tensor that it sends."""
    return torch.tensor(rows)


def fingerprint(value: Value) -> str:
    """A hash of the names, dtypes, shapes and bytes: equal for equal values on any device."""
    digest = hashlib.blake2b(digest_size=16)
    for name, leaf in sorted(as_state(value).items()):
        digest.update(str((name, leaf.dtype, tuple(leaf.shape))).encode())
        # A view of the bytes: `tobytes()` would copy, and double the memory of a shared dataset.
        digest.update(leaf.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
