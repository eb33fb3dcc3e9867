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

import safetensors
import safetensors.torch

from unskew.core.ledger import Entry, Sent
from unskew.core.messages import as_state
from unskew.core.state import Message, Value
from unskew.engine.workers import to_bytes
from unskew.errors import UserError
from unskew.results.folder import check_whole, manifest_of


@dataclass(frozen=True)
class Recorded:
    """What was recorded of one round, in the order of the ledger."""

    round: int
    sent: tuple[Sent, ...]

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


def to_files(kept: list[Sent]) -> dict[str, bytes]:
    """File names below `messages/` and their contents."""
    values: dict[str, dict[str, Value]] = {}
    listed: dict[str, list[Sent]] = {}
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


def _key(entry: Entry) -> str:
    return f"{entry.part}/{entry.artefact}"


def _stem(sent: Sent, have: dict[str, dict[str, Value]]) -> str:
    entry = sent.entry
    who = str(entry.client) if entry.direction == "up" else "down"
    stem = f"{entry.round:06d}-{who}" + ("" if entry.phase == "train" else f"-{entry.phase.replace(' ', '-')}")
    number, name = 1, stem
    while have.get(name, {}).get(_key(entry), sent.value) is not sent.value:
        number, name = number + 1, f"{stem}-{number + 1}"
    return name


def read(folder: Path) -> list[Recorded]:
    """Everything recorded in a finished run, every file checked against its hash."""
    hashes: dict[str, dict[str, str]] = (manifest_of(folder) or {}).get("messages", {})
    rounds = []
    for round, files in sorted(hashes.items(), key=lambda item: int(item[0])):
        check_whole(folder, files)
        sent = [one for name in files if name.endswith(".json") for one in _read_one(folder / name)]
        rounds.append(Recorded(int(round), tuple(sent)))
    return rounds


def _read_one(path: Path) -> list[Sent]:
    try:
        tensors = safetensors.torch.load_file(path.with_suffix(".safetensors"))
        entries = [(Entry(*(e[name] for name in Entry._fields)), e["reduce"]) for e in json.loads(path.read_text())]
        return [Sent(entry, reduce, _value(tensors, _key(entry))) for entry, reduce in entries]
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(f"{path}: expected a recorded message, found: {error}; play the run again") from error


def _value(tensors: dict, key: str) -> Value:
    if key in tensors:
        return tensors[key]
    return {name.removeprefix(f"{key}/"): t for name, t in tensors.items() if name.startswith(f"{key}/")}
