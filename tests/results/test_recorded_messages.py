"""Recorded messages: exactly those in the ledger, hashed, and the same bytes after an interruption."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

import unskew as us
from runner import toys
from unskew.base.tree import size_in_bytes
from unskew.results import recorded_messages
from unskew.wire.ledger import LedgerMessage

RECORD = {"rounds": [1, 3], "clients": [0, 2]}


def listed(folder: Path, rounds: Iterable[int], clients: Iterable[int]) -> list[tuple]:
    ledger = toys.rows_of(folder, "ledger")
    selected = ledger[ledger["round"].isin(list(rounds)) & ledger["client"].isin(list(clients))]
    return sorted(selected.itertuples(index=False, name=None))


@pytest.mark.parametrize("method", ["scaffold", "fedcurv", "fedavg+toy-share+toy-lasting+toy-end", "fednova"])
def test_recorded_messages_are_exactly_those_in_the_ledger(method: str, tmp_path: Path) -> None:
    toys.run(tmp_path, method=method, record=RECORD)
    messages = [sent for recorded in recorded_messages.read(tmp_path) for sent in recorded.sent]
    assert sorted(tuple(sent.entry) for sent in messages) == listed(tmp_path, [1, 3], [0, 2])
    assert all(size_in_bytes(value) == entry.bytes for entry, _, value in messages)
    stems = {p.stem for p in (tmp_path / "messages").glob("*.safetensors")}
    assert {p.stem for p in (tmp_path / "messages").glob("*.json")} == stems


def test_the_broadcast_is_the_model_before_the_round(tmp_path: Path) -> None:
    toys.run(tmp_path, method="fedavg", record={"rounds": [1, 2]}, rounds=2)
    first, second = recorded_messages.read(tmp_path)
    rows = {k: float(first.of(k, "up")["model"]["samples"]) for k in range(3)}
    for name, tensor in second.of(0, "down")["model"]["weights"].items():
        total = sum(rows[k] * first.of(k, "up")["average"]["weights"][name].double() for k in rows)
        assert torch.equal((total * (1 / sum(rows.values()))).float(), tensor), name


def test_messages_are_the_same_bytes_after_a_resume(tmp_path: Path) -> None:
    changes = {"method": "scaffold+toy-end", "record": {"rounds": [1, 2, 3]}}
    toys.run(tmp_path / "uninterrupted", **changes)
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "resumed", phase=toys.stop_at("evaluate", 3), checkpoint=toys.EAGER, **changes)
    toys.run(tmp_path / "resumed", resume=True, **changes)
    assert contents(tmp_path / "uninterrupted") == contents(tmp_path / "resumed")
    assert toys.manifest(tmp_path / "uninterrupted")["messages"] == toys.manifest(tmp_path / "resumed")["messages"]
    assert len(recorded_messages.read(tmp_path / "resumed")) == 3


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "messages").iterdir()}


@pytest.mark.parametrize("suffix", ["safetensors", "json"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "tampered"])
def test_a_damaged_message_is_named(damage: str, suffix: str, tmp_path: Path) -> None:
    toys.run(tmp_path, record={"rounds": [1]}, rounds=1)
    path = tmp_path / "messages" / f"000001-1.{suffix}"
    data = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(data[:-9] if damage == "truncated" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(us.UserError, match=f"000001-1.{suffix}"):
        recorded_messages.read(tmp_path)


def test_a_second_broadcast_in_one_phase_has_its_own_file() -> None:
    from unskew.protocol.part import Artefact
    from unskew.wire.ledger import Ledger

    ledger = Ledger().for_next_round(lambda round, client: client < 2)
    for number in (1.0, 2.0):
        ledger.log_down(
            1, "after merge", range(3), "model", "weights", Artefact("weights"), {"w": torch.tensor(number)}
        )
    assert [sent.entry.client for sent in ledger.recorded] == [0, 1, 0, 1]
    assert all(isinstance(sent, LedgerMessage) for sent in ledger.recorded)
    names = {name for name in recorded_messages.to_files(ledger.recorded) if name.endswith(".safetensors")}
    assert names == {"000001-down-after-merge.safetensors", "000001-down-after-merge-2.safetensors"}
