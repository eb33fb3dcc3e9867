"""Recorded messages as files: the tensors as safetensors, and the ledger entries of each such file as JSON.

    messages/000002-0.safetensors         sent by client 0 in round 2
    messages/000002-0-after-merge...      sent by it in an exchange
    messages/000002-down.safetensors      sent to all recorded clients, stored once

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
from unskew.results.run_folder import check_hashes, read_manifest
from unskew.wire.ledger import LedgerEntry, LedgerMessage


@dataclass(frozen=True)
class RecordedRound:
    """The recorded messages of one round, in the order of the ledger."""

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
        """The number of rows that the client reports."""
        return int(next(v for e, _, v in self.sent if (e.client, e.part, e.artefact) == (client, "model", "samples")))  # type: ignore[arg-type]

    @property
    def senders(self) -> list[int]:
        """Clients whose messages after training were recorded."""
        return sorted({e.client for e, _, _ in self.sent if e.direction == "up" and e.phase == "train"})


def to_files(recorded: list[LedgerMessage]) -> dict[str, bytes]:
    """File names in `messages/` and their contents."""
    values: dict[str, dict[str, Value]] = {}
    listed: dict[str, list[LedgerMessage]] = {}
    for sent in recorded:
        stem = _unique_stem(sent, values)
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


def _unique_stem(sent: LedgerMessage, existing: dict[str, dict[str, Value]]) -> str:
    entry = sent.entry
    sender = str(entry.client) if entry.direction == "up" else "down"
    stem = f"{entry.round:06d}-{sender}" + ("" if entry.phase == "train" else f"-{entry.phase.replace(' ', '-')}")
    number, name = 1, stem
    while existing.get(name, {}).get(_key(entry), sent.value) is not sent.value:
        number, name = number + 1, f"{stem}-{number + 1}"
    return name


class _EntryJson(ConfigSection):
    """The schema of a written entry: a correct hash proves that a file is complete, not that its contents are valid."""

    round: int = Field(ge=0)
    phase: str
    client: int = Field(ge=0)
    direction: Literal["up", "down"]
    part: str
    artefact: str
    kind: Kind
    bytes: int = Field(ge=0)
    reduce: Literal["mean", "sum", "rows", "each"]


_ENTRIES = TypeAdapter(list[_EntryJson])
_HASHES = TypeAdapter(dict[int, dict[Annotated[str, Field(pattern=r"^messages/[\w-]+\.(json|safetensors)$")], str]])


def read(folder: Path) -> list[RecordedRound]:
    """All recorded messages of a finished run, every file checked against its hash."""
    try:
        hashes = _HASHES.validate_python((read_manifest(folder) or {}).get("messages", {}))
    except ValidationError as error:
        path, reason = folder / "checkpoint" / "manifest.json", error.errors()[0]["msg"]
        raise UserError(f"{path}: expected files of messages with their hashes, found: {reason}") from error
    rounds = []
    for round, files in sorted(hashes.items()):
        check_hashes(folder, files)
        sent = [one for name in files if name.endswith(".json") for one in _read_file(folder / name, round)]
        rounds.append(RecordedRound(round, tuple(sent)))
    return rounds


def _read_file(path: Path, round: int) -> list[LedgerMessage]:
    try:
        tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
        entries = _ENTRIES.validate_json(path.read_bytes())
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise _invalid(path, str(error)) from error
    messages = []
    for validated in entries:
        entry = LedgerEntry(**validated.model_dump(exclude={"reduce"}))
        value = _value(tensors, _key(entry))
        if size_in_bytes(value) != entry.bytes or entry.round != round:
            raise _invalid(path, f"{size_in_bytes(value)} bytes of {_key(entry)} where {entry.bytes} were sent")
        messages.append(LedgerMessage(entry, validated.reduce, value))
    keys = {_key(sent.entry) for sent in messages}
    if extra := [name for name in tensors if not any(name == key or name.startswith(f"{key}/") for key in keys)]:
        raise _invalid(path, f"{extra[0]!r}, which is in no entry")
    return messages


def _invalid(path: Path, problem: str) -> UserError:
    return UserError(f"{path}: expected a recorded message, found: {problem}; run it again")


def _value(tensors: dict, key: str) -> Value:
    if key in tensors:
        return tensors[key]
    return {name.removeprefix(f"{key}/"): t for name, t in tensors.items() if name.startswith(f"{key}/")}
