"""Runs whose clients' state rests on disk: the bytes of a run that has it in memory."""

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
    toys.play(tmp_path / "memory", **keys)
    request.getfixturevalue("on_disk")
    toys.play(tmp_path / "disk", **keys)
    toys.assert_same(tmp_path / "memory", tmp_path / "disk")
    assert not (tmp_path / "disk" / ".state").exists()


def test_a_resume_goes_on_from_the_checkpoint(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Interrupted, and killed with files left behind; the first part of the run had its state in memory."""
    toys.play(tmp_path / "whole", method="scaffold")
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "cut", method="scaffold", phase=toys.stop_at("merge", 2), checkpoint=toys.EAGER)
    (tmp_path / "cut" / ".state").mkdir()
    (tmp_path / "cut" / ".state" / "0.safetensors").write_bytes(b"half")
    request.getfixturevalue("on_disk")
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "cut", method="scaffold", phase=toys.stop_at("merge", 3), resume=True)
    toys.play(tmp_path / "cut", method="scaffold", resume=True)
    toys.assert_same(tmp_path / "whole", tmp_path / "cut")


def killed(folder: Path) -> None:
    """A run that was killed after round 2, with its state on disk."""
    with pytest.raises(KeyboardInterrupt):
        toys.play(folder, method="scaffold", phase=toys.stop_at("merge", 3), checkpoint=toys.EAGER)
    (folder / ".state").mkdir()
    for name in ("0.safetensors", "1.safetensors"):
        (folder / ".state" / name).write_bytes(b"half")


def test_what_a_killed_run_left_goes_although_the_rest_of_the_run_has_its_state_in_memory(tmp_path: Path) -> None:
    toys.play(tmp_path / "whole", method="scaffold")
    killed(tmp_path / "cut")
    seen: list[bool] = []
    toys.play(
        tmp_path / "cut",
        method="scaffold",
        resume=True,
        phase=lambda *_: seen.append((tmp_path / "cut" / ".state").exists()),
    )
    assert seen
    assert not any(seen)
    toys.assert_same(tmp_path / "whole", tmp_path / "cut")


def test_what_was_left_of_a_finished_run_goes_too(tmp_path: Path) -> None:
    """Killed between the last checkpoint and the end."""
    toys.play(tmp_path, method="scaffold")
    (tmp_path / ".state").mkdir()
    toys.play(tmp_path, method="scaffold", resume=True)
    assert not (tmp_path / ".state").exists()


def test_a_refused_start_touches_nothing(tmp_path: Path) -> None:
    killed(tmp_path)
    for changes in ({}, {"resume": True, "seed": 5}):
        with pytest.raises(us.UserError):
            toys.play(tmp_path, method="scaffold", **changes)
    assert len(list((tmp_path / ".state").iterdir())) == 2


def test_a_kill_while_old_state_is_removed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys.play(tmp_path / "whole", method="scaffold")
    killed(tmp_path / "cut")

    def half(path: Path, **_: Any) -> None:
        (path / "0.safetensors").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", half)
        with pytest.raises(KeyboardInterrupt):
            toys.play(tmp_path / "cut", method="scaffold", resume=True)
    assert [path.name for path in (tmp_path / "cut" / ".state").iterdir()] == ["1.safetensors"]
    toys.play(tmp_path / "cut", method="scaffold", resume=True)
    toys.assert_same(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.usefixtures("on_disk")
@pytest.mark.parametrize("method", METHODS)
def test_engines_agree(method: str, tmp_path: Path) -> None:
    ends = []
    for engine in ("loop", "stacked"):
        keys: dict[str, Any] = {"engine": {"name": engine, "workers": 1}, "precision": "float64", "method": method}
        made = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset(), state_dir=tmp_path / engine)
        fed = made.federation
        assert isinstance(fed.store.storage, DiskStorage)
        snap = fed.start()
        for _ in range(2):
            snap, _ = fed.play(snap)
            fed.store.commit()
        ends.append(snap.model)
        fed.store.close()
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-12)
