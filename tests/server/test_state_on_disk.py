"""Runs with clients' state on disk give the same bytes as with state in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import unskew as us
from runner import toys
from unskew.runner.prepare_run import prepare
from unskew.server.storage import DiskStorage

METHODS = ["scaffold", "moon", "fedavg"]


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.runner.prepare_run.STATE_IN_MEMORY", -1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("workers", [1, 2])
def test_same_bytes_as_in_memory(method: str, workers: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    keys: dict[str, Any] = {"method": method, "engine": {"name": "loop", "workers": workers}}
    toys.run(tmp_path / "memory", **keys)
    request.getfixturevalue("on_disk")
    toys.run(tmp_path / "disk", **keys)
    toys.assert_same(tmp_path / "memory", tmp_path / "disk")
    assert not (tmp_path / "disk" / ".state").exists()


def test_resume_on_disk_of_a_run_started_in_memory(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Interrupted, then killed with files left over; the first part of the run had its state in memory."""
    toys.run(tmp_path / "uninterrupted", method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "resumed", method="scaffold", phase=toys.stop_at("merge", 2), checkpoint=toys.EAGER)
    (tmp_path / "resumed" / ".state").mkdir()
    (tmp_path / "resumed" / ".state" / "0.safetensors").write_bytes(b"half")
    request.getfixturevalue("on_disk")
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "resumed", method="scaffold", phase=toys.stop_at("merge", 3), resume=True)
    toys.run(tmp_path / "resumed", method="scaffold", resume=True)
    toys.assert_same(tmp_path / "uninterrupted", tmp_path / "resumed")


def kill_after_round_2(folder: Path) -> None:
    """Leave the folder of a run with state on disk that was killed after round 2."""
    with pytest.raises(KeyboardInterrupt):
        toys.run(folder, method="scaffold", phase=toys.stop_at("merge", 3), checkpoint=toys.EAGER)
    (folder / ".state").mkdir()
    for name in ("0.safetensors", "1.safetensors"):
        (folder / ".state" / name).write_bytes(b"half")


def test_leftover_state_of_a_killed_run_is_removed_by_a_resume_in_memory(tmp_path: Path) -> None:
    toys.run(tmp_path / "uninterrupted", method="scaffold")
    kill_after_round_2(tmp_path / "resumed")
    exists: list[bool] = []
    toys.run(
        tmp_path / "resumed",
        method="scaffold",
        resume=True,
        phase=lambda *_: exists.append((tmp_path / "resumed" / ".state").exists()),
    )
    assert exists
    assert not any(exists)
    toys.assert_same(tmp_path / "uninterrupted", tmp_path / "resumed")


def test_leftover_state_of_a_finished_run_is_removed(tmp_path: Path) -> None:
    """As if killed between the last checkpoint and the end."""
    toys.run(tmp_path, method="scaffold")
    (tmp_path / ".state").mkdir()
    toys.run(tmp_path, method="scaffold", resume=True)
    assert not (tmp_path / ".state").exists()


def test_a_refused_start_removes_no_state(tmp_path: Path) -> None:
    kill_after_round_2(tmp_path)
    for changes in ({}, {"resume": True, "seed": 5}):
        with pytest.raises(us.UserError):
            toys.run(tmp_path, method="scaffold", **changes)
    assert len(list((tmp_path / ".state").iterdir())) == 2


def test_a_kill_during_the_removal_of_old_state_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.run(tmp_path / "uninterrupted", method="scaffold")
    kill_after_round_2(tmp_path / "resumed")

    def remove_half(path: Path, **_: Any) -> None:
        (path / "0.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", remove_half)
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path / "resumed", method="scaffold", resume=True)
    assert [path.name for path in (tmp_path / "resumed" / ".state").iterdir()] == ["1.safetensors"]
    toys.run(tmp_path / "resumed", method="scaffold", resume=True)
    toys.assert_same(tmp_path / "uninterrupted", tmp_path / "resumed")


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("method", METHODS)
def test_engines_agree(method: str, tmp_path: Path) -> None:
    models = []
    for engine in ("loop", "stacked"):
        keys: dict[str, Any] = {"engine": {"name": engine, "workers": 1}, "precision": "float64", "method": method}
        prepared = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset(), state_dir=tmp_path / engine)
        fed = prepared.federation
        assert isinstance(fed.store.storage, DiskStorage)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.run_round(snap)
            fed.store.commit()
        models.append(snap.model)
        fed.store.close()
    torch.testing.assert_close(*models, rtol=1e-9, atol=1e-12)
