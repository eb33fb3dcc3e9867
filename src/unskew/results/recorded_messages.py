"""Recorded messages as files: the tensors as safetensors, and beside each such file its ledger entries as JSON.

    messages/000002-0.safetensors         what client 0 sent in round 2
    messages/000002-0-after-merge...      what it sent in an exchange
    messages/000002-down.safetensors      what was sent to the recorded clients, once: it is the same for all of them

A second broadcast of the same artefact in one phase goes to a file of its own, `-down-2`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import safetensors
import safetensors.torch
from pydantic import Field, TypeAdapter, ValidationError

from unskew.base.config_base import ConfigSection
from unskew.base.errors import UserError
from unskew.base.tensor_codec import to_bytes
from unskew.base.tree import Message, Value, as_state, size_in_bytes
from unskew.protocol.part import Kind
from unskew.results.run_folder import check_whole, manifest_of
from unskew.wire.ledger import LedgerEntry, LedgerMessage


@dataclass(frozen=True)
class RecordedRound:
    """What was recorded of one round, in the order of the ledger."""

    round: int
    sent: tuple[LedgerMessage, ...]

    def of(self, client: int, direction: str, phase: str = "train") -> Message:
        """One client's message in one direction, as part -> artefact -> value."""
        message: Message = {}
        for entry, _, value in self.sent:
            if (entry.client, entry.direction, entry.phase) == (client, direction, phase):
                message.setdefault(entry.part, {})[entry.artefact] = value
        return message

    def rows_of(self, client: int) -> int:
        """How many rows the client says it has."""
        return int(next(v for e, _, v in self.sent if (e.client, e.part, e.artefact) == (client, "model", "samples")))  # type: ignore[arg-type]

    @property
    def senders(self) -> list[int]:
        """Clients whose training was recorded."""
        return sorted({e.client for e, _, _ in self.sent if e.direction == "up" and e.phase == "train"})


def to_files(kept: list[LedgerMessage]) -> dict[str, bytes]:
    """File names below `messages/` and their contents."""
    values: dict[str, dict[str, Value]] = {}
    listed: dict[str, list[LedgerMessage]] = {}
    for sent in kept:
        stem = _stem(sent, values)
        values.setdefault(stem, {})[_key(sent.entry)] = sent.value
        listed.setdefault(stem, []).append(sent)
    files: dict[str, bytes] = {}
    for stem, named in values.items():
        tensors = {f"{key}/{name}" if name else key: t for key, v in named.items() for name, t in as_state(v).items()}
        entries = [sent.entry._asdict() | {"reduce": sent.reduce} for sent in listed[stem]]
        files |= {f"{stem}.safetensors": to_bytes(tensors), f"{stem}.json": json.dumps(entries, indent=1).encode()}
    return files


def _key(entry: LedgerEntry) -> str:
    return f"{entry.part}/{entry.artefact}"


def _stem(sent: LedgerMessage, have: dict[str, dict[str, Value]]) -> str:
    entry = sent.entry
    who = str(entry.client) if entry.direction == "up" else "down"
    stem = f"{entry.round:06d}-{who}" + ("" if entry.phase == "train" else f"-{entry.phase.replace(' ', '-')}")
    number, name = 1, stem
    while have.get(name, {}).get(_key(entry), sent.value) is not sent.value:
        number, name = number + 1, f"{stem}-{number + 1}"
    return name


class _Line(ConfigSection):
    """An entry as it is written: hashes say that a file is whole, not that whoever wrote it meant well."""

    round: int = Field(ge=0)
    phase: str
    client: int = Field(ge=0)
    direction: Literal["up", "down"]
    part: str
    artefact: str
    kind: Kind
    bytes: int = Field(ge=0)
    reduce: Literal["mean", "sum", "rows", "each"]


_LINES = TypeAdapter(list[_Line])
_HASHES = TypeAdapter(dict[int, dict[Annotated[str, Field(pattern=r"^messages/[\w-]+\.(json|safetensors)$")], str]])


def read(folder: Path) -> list[RecordedRound]:
    """Everything recorded in a finished run, every file checked against its hash."""
    try:
        hashes = _HASHES.validate_python((manifest_of(folder) or {}).get("messages", {}))
    except ValidationError as error:
        where, why = folder / "checkpoint" / "manifest.json", error.errors()[0]["msg"]
        raise UserError(f"{where}: expected files of messages with their hashes, found: {why}") from error
    rounds = []
    for round, files in sorted(hashes.items()):
        check_whole(folder, files)
        sent = [one for name in files if name.endswith(".json") for one in _read_one(folder / name, round)]
        rounds.append(RecordedRound(round, tuple(sent)))
    return rounds


def _read_one(path: Path, round: int) -> list[LedgerMessage]:
    try:
        tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
        lines = _LINES.validate_json(path.read_bytes())
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise _unlike(path, str(error)) from error
    found = []
    for line in lines:
        entry = LedgerEntry(**line.model_dump(exclude={"reduce"}))
        value = _value(tensors, _key(entry))
        if size_in_bytes(value) != entry.bytes or entry.round != round:
            raise _unlike(path, f"{size_in_bytes(value)} bytes of {_key(entry)} where {entry.bytes} were sent")
        found.append(LedgerMessage(entry, line.reduce, value))
    keys = {_key(sent.entry) for sent in found}
    if more := [name for name in tensors if not any(name == key or name.startswith(f"{key}/") for key in keys)]:
        raise _unlike(path, f"{more[0]!r}, which is in no entry")
    return found


def _unlike(path: Path, found: str) -> UserError:
    return UserError(f"{path}: expected a recorded message, found: {found}; play the run again")


def _value(tensors: dict, key: str) -> Value:
    if key in tensors:
        return tensors[key]
    return {name.removeprefix(f"{key}/"): t for name, t in tensors.items() if name.startswith(f"{key}/")}
