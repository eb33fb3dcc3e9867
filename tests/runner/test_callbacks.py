"""Callbacks see every complete round and change nothing; one that fails stops the run like an interruption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import unskew as us

from . import toys


def play(out: Path, *callbacks: Any, **more: Any) -> us.Run:
    resume = more.pop("resume", False)
    experiment = us.Experiment(**toys.settings(method="scaffold", **more))
    return us.run(experiment, out=out, data=toys.dataset(), callbacks=callbacks, resume=resume)


def test_callback_sees_the_rows_of_every_round(tmp_path: Path) -> None:
    seen: list[us.Round] = []
    run = play(tmp_path, seen.append, evaluate={"every": 2})
    assert [done.round for done in seen] == [1, 2, 3]
    assert [done.accuracy is None for done in seen] == [True, False, False]
    assert seen[-1].best == run.summary.best
    told = [row for done in seen for row in done.rows]
    assert told == list(run.metrics[run.metrics["round"] > 0].itertuples(index=False, name=None))
    assert list(seen[0].frame.columns) == list(run.metrics.columns)


def vandal(done: us.Round) -> None:
    """Everything a callback could try with what it is given, and with the random state."""
    torch.manual_seed(7)
    frame = done.frame
    frame["value"] = -1.0
    object.__setattr__(done, "rows", ())
    object.__setattr__(done, "best", 1e9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.round = 99  # type: ignore[misc]


def test_callbacks_change_no_byte(tmp_path: Path) -> None:
    after: list[tuple[int, float]] = []
    play(tmp_path / "alone")
    play(tmp_path / "watched", vandal, lambda done: after.append((len(done.rows), done.best)))
    toys.assert_same(tmp_path / "alone", tmp_path / "watched")
    assert all(rows > 0 and best <= 100 for rows, best in after), "one callback reached the next"


def test_callback_that_fails_stops_the_run_and_is_blamed(tmp_path: Path) -> None:
    def clumsy(done: us.Round) -> None:
        if done.round == 2:
            raise KeyError("colour")

    with pytest.raises(us.UserError, match=r"callback .*clumsy: failed after round 2 with KeyError: 'colour'") as told:
        play(tmp_path / "run", clumsy)
    assert "--resume" in str(told.value)
    assert isinstance(told.value.__cause__, KeyError)
    assert toys.manifest(tmp_path / "run")["round"] == 2
    seen: list[int] = []
    play(tmp_path / "run", lambda done: seen.append(done.round), resume=True)
    assert seen == [3]
    play(tmp_path / "alone")
    toys.assert_same(tmp_path / "alone", tmp_path / "run")


def test_ctrl_c_in_a_callback_is_a_ctrl_c(tmp_path: Path) -> None:
    def interrupt(done: us.Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, interrupt)
    assert toys.manifest(tmp_path)["round"] == 1


def test_a_function_alone_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(us.UserError, match="expected a list of functions"):
        us.run(us.Experiment(rounds=1), out=tmp_path / "run", callbacks=print)
    assert not (tmp_path / "run").exists()
