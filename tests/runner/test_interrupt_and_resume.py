"""Ctrl-C in any phase of a round, or a crash at any write, then a resume: the bytes of an uninterrupted run."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import unskew as us
from unskew.runner.run_experiment import NoDisplay
from unskew.server.inbox import Inbox

from . import toys

PHASES = (
    "plan",
    "before round",
    "train",
    "after training",
    "stand-ins",
    "merge",
    "step",
    "after merge",
    "evaluate",
    "checkpoint",
)
UninterruptedRun = Callable[..., Path]


class Killed(BaseException):
    """Stands for kill -9: nothing may be written after this."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> UninterruptedRun:
    """The folder of an uninterrupted run of a method, run once."""

    @cache
    def folder(method: str, **keys: int) -> Path:
        path = tmp_path_factory.mktemp("uninterrupted")
        toys.run(path, method=method, **keys)
        return path

    return folder


def test_phases_are_reported_in_order(tmp_path: Path) -> None:
    phases: list[tuple[str, int]] = []
    toys.run(tmp_path, rounds=2, phase=lambda name, round: phases.append((name, round)))
    assert phases == [(name, round) for round in (1, 2) for name in PHASES]


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("method", ["scaffold", "fedavg+toy-share+toy-lasting"])
def test_interrupted_at_any_phase_and_resumed(
    method: str, phase: str, checkpoint: dict, uninterrupted: UninterruptedRun, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, method=method, checkpoint=checkpoint, phase=toys.stop_at(phase, 2))
    assert toys.manifest(tmp_path)["round"] == (2 if phase == "checkpoint" else 1)
    toys.run(tmp_path, method=method, checkpoint=checkpoint, resume=True)
    toys.assert_same(uninterrupted(method), tmp_path)


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
@pytest.mark.parametrize("method", toys.shipped())
def test_every_method_interrupted_at_one_phase_after_another(
    method: str, checkpoint: dict, uninterrupted: UninterruptedRun, tmp_path: Path
) -> None:
    """Each resume completes a round and is stopped in the next, one phase later; leftovers would change the result."""
    keys = {"method": method, "rounds": len(PHASES) + 1}
    for round, phase in enumerate(PHASES, 2):
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path, checkpoint=checkpoint, resume=True, phase=toys.stop_at(phase, round), **keys)
        assert toys.manifest(tmp_path)["round"] == (round if phase == "checkpoint" else round - 1)
    toys.run(tmp_path, checkpoint=checkpoint, resume=True, **keys)
    toys.assert_same(uninterrupted(**keys), tmp_path)


def test_interrupted_in_round_1_saves_round_0(uninterrupted: UninterruptedRun, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, method="moon", phase=toys.stop_at("merge", 1))
    assert toys.manifest(tmp_path)["round"] == 0
    toys.run(tmp_path, method="moon", resume=True)
    toys.assert_same(uninterrupted("moon"), tmp_path)


def test_interrupted_repeatedly(uninterrupted: UninterruptedRun, tmp_path: Path) -> None:
    for phase, round in (
        ("train", 1),
        ("merge", 1),
        ("checkpoint", 1),
        ("step", 2),
        ("evaluate", 3),
        ("checkpoint", 3),
    ):
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path, method="scaffold", resume=True, phase=toys.stop_at(phase, round))
    toys.run(tmp_path, method="scaffold", resume=True)
    toys.assert_same(uninterrupted("scaffold"), tmp_path)


def test_an_error_saves_like_an_interrupt(uninterrupted: UninterruptedRun, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        toys.run(tmp_path, method="scaffold", phase=toys.stop_at("merge", 3, RuntimeError))
    assert toys.manifest(tmp_path)["round"] == 2
    toys.run(tmp_path, method="scaffold", resume=True)
    toys.assert_same(uninterrupted("scaffold"), tmp_path)


def test_interrupted_between_two_clients(
    uninterrupted: UninterruptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, calls = Inbox.receive, itertools.count()

    def stop_at_fifth(*args: Any) -> None:
        receive(*args)
        if next(calls) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "receive", stop_at_fifth)
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path, method="scaffold")
    toys.run(tmp_path, method="scaffold", resume=True)
    toys.assert_same(uninterrupted("scaffold"), tmp_path)


def test_resumed_with_other_workers_clock_and_records(uninterrupted: UninterruptedRun, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, method="moon", phase=toys.stop_at("merge", 2))
    other = {"engine": {"name": "loop", "workers": 2}, "checkpoint": toys.EAGER, "record": {"rounds": [3]}}
    toys.run(tmp_path, method="moon", resume=True, **other)
    toys.assert_same(uninterrupted("moon"), tmp_path)


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
def test_killed_at_every_write(checkpoint: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fsync` comes after a file's bytes and before the file gets its name: the worst moment."""
    changes = {"method": "scaffold+toy-end", "rounds": 2, "checkpoint": checkpoint}
    toys.run(tmp_path / "uninterrupted", **changes)
    for number in itertools.count():
        folder = tmp_path / str(number)
        if not killed_at(number, folder, changes, monkeypatch):
            break
        toys.run(folder, resume=True, **changes)
        toys.assert_same(tmp_path / "uninterrupted", folder)
        assert not list(folder.rglob("*.tmp")), number
    assert number > 10


def killed_at(number: int, folder: Path, changes: dict, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run until write `number` (from 0), which fails like all later ones; False if there are fewer writes."""
    sync, calls = os.fsync, itertools.count()

    def kill(file: int) -> None:
        if next(calls) >= number:
            raise Killed
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", kill)
        try:
            toys.run(folder, **changes)
        except Killed:
            return True
    return False


def test_interrupted_while_the_result_files_are_written(
    uninterrupted: UninterruptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C after the exchange at the end: ledger and clients' state show it only once."""
    method = "fedavg+toy-end"

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unskew.results.run_folder.RunFolder.finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            toys.run(tmp_path, method=method)
    toys.run(tmp_path, method=method, resume=True)
    toys.assert_same(uninterrupted(method), tmp_path)


def test_resume_shows_the_best_accuracy_of_all_rounds(tmp_path: Path) -> None:
    """The best accuracy shown after a resume includes the rounds before it."""

    class RecordBest(NoDisplay):
        best = -1.0

        def round(self, round: int, accuracy: float | None, best: float) -> None:
            self.best = best

    show, experiment = RecordBest(), us.Experiment(**toys.settings(local={"epochs": 1, "lr": 1e-9}))
    with pytest.raises(KeyboardInterrupt):
        us.run(experiment, out=tmp_path, data=toys.dataset(), phase=toys.stop_at("plan", 3))
    raise_first_accuracy(tmp_path)
    us.run(experiment, out=tmp_path, data=toys.dataset(), resume=True, show=show)
    assert show.best == 100.0


def raise_first_accuracy(folder: Path) -> None:
    """Make round 1 the best and update the hash."""
    manifest = toys.manifest(folder)
    name = f"{manifest['folder']}/metrics.parquet"
    rows = toys.rows_of(folder / manifest["folder"])
    rows.loc[(rows["round"] == 1) & (rows["metric"] == "accuracy"), "value"] = 100.0
    rows.to_parquet(folder / name, index=False)
    manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "checkpoint" / "manifest.json").write_text(json.dumps(manifest))
