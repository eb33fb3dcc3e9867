"""Callbacks see every complete round and cannot change it; one that fails stops the run like an interruption."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import unskew as us

from . import toys


def run_with(out: Path, *callbacks: Any, **more: Any) -> us.Run:
    resume = more.pop("resume", False)
    experiment = us.Experiment(**toys.settings(method="scaffold", **more))
    return us.run(experiment, out=out, data=toys.dataset(), callbacks=callbacks, resume=resume)


def test_callback_sees_the_rows_of_every_round(tmp_path: Path) -> None:
    rounds: list[us.Round] = []
    run = run_with(tmp_path, rounds.append, evaluate={"every": 2})
    assert [done.round for done in rounds] == [1, 2, 3]
    assert [done.accuracy is None for done in rounds] == [True, False, False]
    assert rounds[-1].best == run.summary.best
    rows = [row for done in rounds for row in done.rows]
    assert rows == list(run.metrics[run.metrics["round"] > 0].itertuples(index=False, name=None))
    assert list(rounds[0].frame.columns) == list(run.metrics.columns)


def tampering(done: us.Round) -> None:
    """Try to change the round that it gets, and the random state."""
    torch.manual_seed(7)
    frame = done.frame
    frame["value"] = -1.0
    object.__setattr__(done, "rows", ())
    object.__setattr__(done, "best", 1e9)
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.round = 99  # type: ignore[misc]


def test_callbacks_do_not_change_the_results(tmp_path: Path) -> None:
    after: list[tuple[int, float]] = []
    run_with(tmp_path / "without")
    run_with(tmp_path / "with", tampering, lambda done: after.append((len(done.rows), done.best)))
    toys.assert_same(tmp_path / "without", tmp_path / "with")
    assert all(rows > 0 and best <= 100 for rows, best in after), "one callback affected the next"


def test_callback_that_fails_stops_the_run_and_is_named(tmp_path: Path) -> None:
    def failing(done: us.Round) -> None:
        if done.round == 2:
            raise KeyError("colour")

    with pytest.raises(
        us.UserError, match=r"callback .*failing: failed after round 2 with KeyError: 'colour'"
    ) as error:
        run_with(tmp_path / "run", failing)
    assert "--resume" in str(error.value)
    assert isinstance(error.value.__cause__, KeyError)
    assert toys.manifest(tmp_path / "run")["round"] == 2
    rounds: list[int] = []
    run_with(tmp_path / "run", lambda done: rounds.append(done.round), resume=True)
    assert rounds == [3]
    run_with(tmp_path / "without")
    toys.assert_same(tmp_path / "without", tmp_path / "run")


def test_ctrl_c_in_a_callback_interrupts_the_run(tmp_path: Path) -> None:
    def interrupt(done: us.Round) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_with(tmp_path, interrupt)
    assert toys.manifest(tmp_path)["round"] == 1


def test_a_function_instead_of_a_list_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(us.UserError, match="expected a list of functions"):
        us.run(us.Experiment(rounds=1), out=tmp_path / "run", callbacks=print)
    assert not (tmp_path / "run").exists()
