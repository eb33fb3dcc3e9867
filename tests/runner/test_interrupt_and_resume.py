"""Ctrl-C at any phase of a round, or a crash at any write, then a resume: the bytes of an uninterrupted run."""

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
Whole = Callable[..., Path]


class Killed(BaseException):
    """The process is gone: nothing may be written after this."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The folder of an uninterrupted run of a method, played once."""

    @cache
    def folder(method: str, **keys: int) -> Path:
        path = tmp_path_factory.mktemp("whole")
        toys.play(path, method=method, **keys)
        return path

    return folder


def test_phases_are_told_in_this_order(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    toys.play(tmp_path, rounds=2, phase=lambda name, round: told.append((name, round)))
    assert told == [(name, round) for round in (1, 2) for name in PHASES]


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("method", ["scaffold", "fedavg+toy-share+toy-lasting"])
def test_interrupted_at(method: str, phase: str, checkpoint: dict, whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path, method=method, checkpoint=checkpoint, phase=toys.stop_at(phase, 2))
    assert toys.manifest(tmp_path)["round"] == (2 if phase == "checkpoint" else 1)
    toys.play(tmp_path, method=method, checkpoint=checkpoint, resume=True)
    toys.assert_same(whole(method), tmp_path)


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
@pytest.mark.parametrize("method", toys.shipped())
def test_every_method_interrupted_at_one_phase_after_another(
    method: str, checkpoint: dict, whole: Whole, tmp_path: Path
) -> None:
    """Each resume completes a round and is stopped in the next one, a phase later: what was left behind would show."""
    keys = {"method": method, "rounds": len(PHASES) + 1}
    for round, phase in enumerate(PHASES, 2):
        with pytest.raises(KeyboardInterrupt):
            toys.play(tmp_path, checkpoint=checkpoint, resume=True, phase=toys.stop_at(phase, round), **keys)
        assert toys.manifest(tmp_path)["round"] == (round if phase == "checkpoint" else round - 1)
    toys.play(tmp_path, checkpoint=checkpoint, resume=True, **keys)
    toys.assert_same(whole(**keys), tmp_path)


def test_interrupted_in_round_1_saves_the_beginning(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path, method="moon", phase=toys.stop_at("merge", 1))
    assert toys.manifest(tmp_path)["round"] == 0
    toys.play(tmp_path, method="moon", resume=True)
    toys.assert_same(whole("moon"), tmp_path)


def test_interrupted_again_and_again(whole: Whole, tmp_path: Path) -> None:
    for phase, round in (
        ("train", 1),
        ("merge", 1),
        ("checkpoint", 1),
        ("step", 2),
        ("evaluate", 3),
        ("checkpoint", 3),
    ):
        with pytest.raises(KeyboardInterrupt):
            toys.play(tmp_path, method="scaffold", resume=True, phase=toys.stop_at(phase, round))
    toys.play(tmp_path, method="scaffold", resume=True)
    toys.assert_same(whole("scaffold"), tmp_path)


def test_an_error_saves_like_an_interrupt(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        toys.play(tmp_path, method="scaffold", phase=toys.stop_at("merge", 3, RuntimeError))
    assert toys.manifest(tmp_path)["round"] == 2
    toys.play(tmp_path, method="scaffold", resume=True)
    toys.assert_same(whole("scaffold"), tmp_path)


def test_interrupted_between_two_clients(whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, calls = Inbox.take_in, itertools.count()

    def stop_at_fifth(*args: Any) -> None:
        receive(*args)
        if next(calls) == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Inbox, "take_in", stop_at_fifth)
        with pytest.raises(KeyboardInterrupt):
            toys.play(tmp_path, method="scaffold")
    toys.play(tmp_path, method="scaffold", resume=True)
    toys.assert_same(whole("scaffold"), tmp_path)


def test_resumed_with_other_workers_clock_and_records(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path, method="moon", phase=toys.stop_at("merge", 2))
    other = {"engine": {"name": "loop", "workers": 2}, "checkpoint": toys.EAGER, "record": {"rounds": [3]}}
    toys.play(tmp_path, method="moon", resume=True, **other)
    toys.assert_same(whole("moon"), tmp_path)


@pytest.mark.parametrize("checkpoint", [toys.EAGER, toys.CALM], ids=["eager", "calm"])
def test_killed_at_every_write(checkpoint: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fsync` comes after a file's bytes and before the file gets its name: the worst moment."""
    changes = {"method": "scaffold+toy-end", "rounds": 2, "checkpoint": checkpoint}
    toys.play(tmp_path / "whole", **changes)
    for number in itertools.count():
        folder = tmp_path / str(number)
        if not killed_at(number, folder, changes, monkeypatch):
            break
        toys.play(folder, resume=True, **changes)
        toys.assert_same(tmp_path / "whole", folder)
        assert not list(folder.rglob("*.tmp")), number
    assert number > 10


def killed_at(number: int, folder: Path, changes: dict, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Play until write `number` (from 0), at which and after which nothing is written; False if there are fewer."""
    sync, calls = os.fsync, itertools.count()

    def die(file: int) -> None:
        if next(calls) >= number:
            raise Killed
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", die)
        try:
            toys.play(folder, **changes)
        except Killed:
            return True
    return False


def test_interrupted_while_the_end_is_written(whole: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the exchange at the end: it is played once in the books, and clients were asked once."""
    method = "fedavg+toy-end"

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("unskew.results.run_folder.RunFolder.finish", interrupt)
        with pytest.raises(KeyboardInterrupt):
            toys.play(tmp_path, method=method)
    toys.play(tmp_path, method=method, resume=True)
    toys.assert_same(whole(method), tmp_path)


def test_resume_tells_the_best_of_the_whole_run(tmp_path: Path) -> None:
    """The best accuracy shown after a resume counts the rounds before it."""

    class Listen(NoDisplay):
        best = -1.0

        def round(self, round: int, accuracy: float | None, best: float) -> None:
            self.best = best

    show, experiment = Listen(), us.Experiment(**toys.settings(local={"epochs": 1, "lr": 1e-9}))
    with pytest.raises(KeyboardInterrupt):
        us.run(experiment, out=tmp_path, data=toys.dataset(), phase=toys.stop_at("plan", 3))
    raise_first_accuracy(tmp_path)
    us.run(experiment, out=tmp_path, data=toys.dataset(), resume=True, show=show)
    assert show.best == 100.0


def raise_first_accuracy(folder: Path) -> None:
    """Make round 1 the best, with the right hash."""
    made = toys.manifest(folder)
    name = f"{made['folder']}/metrics.parquet"
    rows = toys.rows_of(folder / made["folder"])
    rows.loc[(rows["round"] == 1) & (rows["metric"] == "accuracy"), "value"] = 100.0
    rows.to_parquet(folder / name, index=False)
    made["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (folder / "checkpoint" / "manifest.json").write_text(json.dumps(made))
