"""Clients' state on disk is restored unchanged, and its files are deleted once unused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import unskew as us
from unskew.base.tree import Tree
from unskew.runner.prepare_run import prepare
from unskew.server.client_store import ClientStore
from unskew.server.storage import DiskStorage, MemoryStorage


def tree(value: float) -> Tree:
    """Names with slashes, a scalar, integers, a transposed tensor."""
    return {
        "part": {"0.weight": torch.full((2, 3), value).t(), "a/b": torch.tensor(value, dtype=torch.float64)},
        "other": {"rounds": torch.tensor([int(value)])},
    }


def store(folder: Path) -> ClientStore:
    return ClientStore(lambda client: {}, DiskStorage(folder))


def files(folder: Path) -> int:
    return len(list(folder.glob("*"))) if folder.exists() else 0


def test_a_state_is_restored_unchanged(tmp_path: Path) -> None:
    states = store(tmp_path / "state")
    states.put(7, tree(3.0))
    states.commit()
    for part, expected in tree(3.0).items():
        torch.testing.assert_close(states.get(7)[part], expected, rtol=0, atol=0)
    assert states.get(8) == {}


def test_only_the_current_state_has_a_file(tmp_path: Path) -> None:
    """A complete round replaces a client's file; a round that is rolled back does not."""
    folder = tmp_path / "state"
    states = store(folder)
    assert not folder.exists()
    for value in (1.0, 2.0):
        states.put(0, tree(value))
        states.put(1, tree(value))
        states.commit()
        assert files(folder) == 2
    before = states.get(0)
    states.put(0, tree(9.0))
    assert files(folder) == 3
    states.rollback()
    assert files(folder) == 2
    assert float(states.get(0)["part"]["a/b"]) == float(before["part"]["a/b"]) == 2.0


def test_the_folder_is_emptied_at_the_start_and_removed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "left by a killed run").touch()
    states = store(folder)
    states.put(0, tree(1.0))
    assert files(folder) == 1
    states.close()
    assert not folder.exists()


def test_membership_in_entries_reads_no_file(tmp_path: Path) -> None:
    states = store(tmp_path / "state")
    states.put(4, tree(1.0))
    states.commit()
    for file in (tmp_path / "state").iterdir():
        file.write_bytes(b"")
    assert 4 in states.entries
    assert 5 not in states.entries
    assert list(states.entries) == [4]


@pytest.mark.parametrize(
    ("method", "clients", "rounds", "storage"),
    [
        ("fedavg", 1_000_000, 1000, MemoryStorage),  # has no client state
        ("scaffold", 1_000_000, 2, MemoryStorage),  # 20 clients in total
        ("scaffold", 1_000_000, 100_000, DiskStorage),  # a million times 19 kB
        ("scaffold", 100, 100_000, MemoryStorage),
    ],
)
def test_disk_if_the_state_of_all_participants_would_not_fit(
    method: str, clients: int, rounds: int, storage: type
) -> None:
    on_demand = {"name": "on-demand", "clients": clients, "rows": 5}
    keys = {"partition": on_demand, "participation": 10 / clients, "rounds": rounds, "local": {"momentum": 0.0}}
    prepared = prepare(us.Experiment(method=method, device="cpu", engine={"name": "loop", "workers": 1}, **keys))
    assert type(prepared.federation.store.storage) is storage
    prepared.federation.store.close()
