"""The ledger: who sent what to whom, when, and how many bytes. Costs, exposure and the audit read nothing else."""

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

REFUSED = "refused"  # the kind of a refused reply's row, whose artefact is the reason


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
    """An entry with what it stands for: what an observer on the wire would have, and all he would have."""

    entry: LedgerEntry
    reduce: str  # how far it may be added up on the way
    value: Value


Keeps = Callable[[int, int], bool]  # (round, client): whether what the entries stand for is kept


def nothing(round: int, client: int) -> bool:
    return False


@dataclass
class Ledger:
    """Entries of one round, the totals of the run, and who holds which lasting artefact.

    Recording is done here and nowhere else, so that no record can hold more than the ledger lists.
    """

    entries: list[LedgerEntry] = field(default_factory=list)
    bytes_up: int = 0
    bytes_down: int = 0
    holders: dict[str, dict[str, list[int] | str]] = field(default_factory=dict)
    keeps: Keeps = nothing
    kept: list[LedgerMessage] = field(default_factory=list)

    def up(self, round: int, phase: str, client: int, part: str, name: str, artefact: Artefact, value: Value) -> None:
        """A client sent something."""
        entry = LedgerEntry(round, phase, client, "up", part, name, artefact.kind, size_in_bytes(value))
        self.bytes_up += entry.bytes
        self._enter([entry], artefact, value)

    def up_rows(
        self, round: int, phase: str, clients: Iterable[int], columns: Sequence[tuple[str, str, str, int]]
    ) -> None:
        """Several clients sent the same things, each (part, name, kind, bytes); none of it is kept."""
        new = [LedgerEntry(round, phase, k, "up", *column) for k in clients for column in columns]
        self.entries += new
        self.bytes_up += sum(entry.bytes for entry in new)

    def refuse(self, round: int, phase: str, client: int, reason: str, bytes: int) -> None:
        """A reply was refused: the reason, and its bytes where what it held is not listed."""
        self.entries.append(LedgerEntry(round, phase, client, "up", "", reason, REFUSED, bytes))
        self.bytes_up += bytes

    def down(
        self, round: int, phase: str, clients: Iterable[int], part: str, name: str, artefact: Artefact, value: Value
    ) -> None:
        """The server sent the same thing to several clients; a lasting one only to those whose copy is old."""
        receivers = self._outdated(f"{part}/{name}", clients, value) if artefact.lasting else clients
        kind, size = artefact.kind, size_in_bytes(value)
        new = [LedgerEntry(round, phase, k, "down", part, name, kind, size) for k in receivers]
        self.bytes_down += size * len(new)
        self._enter(new, artefact, value)

    def _enter(self, new: list[LedgerEntry], artefact: Artefact, value: Value) -> None:
        self.entries += new
        self.kept += [
            LedgerMessage(entry, artefact.reduce, value) for entry in new if self.keeps(entry.round, entry.client)
        ]

    def _outdated(self, name: str, clients: Iterable[int], value: Value) -> list[int]:
        print_of = fingerprint(value)
        record = self.holders.get(name)
        if record is None or record["fingerprint"] != print_of:
            record = self.holders[name] = {"fingerprint": print_of, "clients": []}
        have = record["clients"]
        fresh = [k for k in clients if k not in have]
        record["clients"] = sorted([*have, *fresh])
        return fresh

    def next(self, keeps: Keeps = nothing) -> Ledger:
        """An empty page that carries the totals on; this one stays as it is."""
        return Ledger([], self.bytes_up, self.bytes_down, {k: dict(v) for k, v in self.holders.items()}, keeps)


@lru_cache(maxsize=4096)
def number(rows: int) -> Tensor:
    """What a client says of its size; many have the same."""
    return torch.tensor(rows)


def fingerprint(value: Value) -> str:
    """Equal for equal numbers, whatever holds them."""
    digest = hashlib.blake2b(digest_size=16)
    for name, leaf in sorted(as_state(value).items()):
        digest.update(str((name, leaf.dtype, tuple(leaf.shape))).encode())
        # A view of the bytes: a copy of them would double the memory that a data set takes.
        digest.update(leaf.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
