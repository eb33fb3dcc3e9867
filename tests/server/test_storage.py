"""Clients' state on disk: what was put there comes back, and no file outlives its use."""

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
    """Names with slashes, a number without an axis, integers, a transposed tensor."""
    return {
        "part": {"0.weight": torch.full((2, 3), value).t(), "a/b": torch.tensor(value, dtype=torch.float64)},
        "other": {"rounds": torch.tensor([int(value)])},
    }


def store(folder: Path) -> ClientStore:
    return ClientStore(lambda client: {}, DiskStorage(folder))


def files(folder: Path) -> int:
    return len(list(folder.glob("*"))) if folder.exists() else 0


def test_a_state_comes_back_as_it_was(tmp_path: Path) -> None:
    kept = store(tmp_path / "state")
    kept.put(7, tree(3.0))
    kept.commit()
    for part, want in tree(3.0).items():
        torch.testing.assert_close(kept.get(7)[part], want, rtol=0, atol=0)
    assert kept.get(8) == {}


def test_only_the_state_in_force_has_a_file(tmp_path: Path) -> None:
    """A round that completes replaces a client's file, one that does not leaves it alone."""
    folder = tmp_path / "state"
    kept = store(folder)
    assert not folder.exists()
    for value in (1.0, 2.0):
        kept.put(0, tree(value))
        kept.put(1, tree(value))
        kept.commit()
        assert files(folder) == 2
    before = kept.get(0)
    kept.put(0, tree(9.0))
    assert files(folder) == 3
    kept.rollback()
    assert files(folder) == 2
    assert float(kept.get(0)["part"]["a/b"]) == float(before["part"]["a/b"]) == 2.0


def test_the_folder_is_emptied_at_the_start_and_removed_at_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "of a killed run").touch()
    kept = store(folder)
    kept.put(0, tree(1.0))
    assert files(folder) == 1
    kept.close()
    assert not folder.exists()


def test_entries_are_looked_up_without_reading_them(tmp_path: Path) -> None:
    kept = store(tmp_path / "state")
    kept.put(4, tree(1.0))
    kept.commit()
    for file in (tmp_path / "state").iterdir():
        file.write_bytes(b"")
    assert 4 in kept.entries
    assert 5 not in kept.entries
    assert list(kept.entries) == [4]


@pytest.mark.parametrize(
    ("method", "clients", "rounds", "home"),
    [
        ("fedavg", 1_000_000, 1000, MemoryStorage),  # keeps nothing
        ("scaffold", 1_000_000, 2, MemoryStorage),  # 20 clients in all
        ("scaffold", 1_000_000, 100_000, DiskStorage),  # a million times 19 kB
        ("scaffold", 100, 100_000, MemoryStorage),
    ],
)
def test_disk_where_all_that_can_take_part_would_not_fit(method: str, clients: int, rounds: int, home: type) -> None:
    on_demand = {"name": "on-demand", "clients": clients, "rows": 5}
    keys = {"partition": on_demand, "participation": 10 / clients, "rounds": rounds, "local": {"momentum": 0.0}}
    made = prepare(us.Experiment(method=method, device="cpu", engine={"name": "loop", "workers": 1}, **keys))
    assert type(made.federation.store.storage) is home
    made.federation.store.close()
