"""Stopping early: by patience, by target, the same after a resume, and told in the summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew.config.stop_config import StopConfig
from unskew.runner.early_stopping import reason_to_stop

FLAT = {"epochs": 1, "batch": 8, "lr": 1e-9}  # nothing is learned, so nothing improves


def numbered(*values: float) -> list[tuple[int, float]]:
    return list(enumerate(values, 1))


@pytest.mark.parametrize(
    ("rule", "metric", "values", "stops"),
    [
        ({"patience": 2}, "test/accuracy", [], False),
        ({"patience": 2}, "test/accuracy", [50, 40], False),
        ({"patience": 2}, "test/accuracy", [50, 40, 50], True),  # equal is not better
        ({"patience": 2}, "test/accuracy", [50, 40, 51], False),
        ({"patience": 2}, "test/loss", [0.5, 0.6, 0.4], False),
        ({"patience": 2}, "test/loss", [0.5, 0.6, 0.7], True),
        ({"patience": 1}, "test/loss", [float("nan"), 0.7], False),  # any number is better than none
        ({"patience": 1}, "test/loss", [0.7, float("nan")], True),
        ({"target": 90.0}, "test/accuracy", [89.9], False),
        ({"target": 90.0}, "test/accuracy", [90.0], True),
        ({"target": 0.3}, "validation/loss", [0.31], False),
        ({"target": 0.3}, "validation/loss", [0.29], True),
        ({"target": 90.0, "patience": 3}, "test/accuracy/2", [10, 9, 8, 7], True),
    ],
)
def test_reason_to_stop(rule: dict[str, Any], metric: str, values: list[float], stops: bool) -> None:
    assert bool(reason_to_stop(StopConfig(**rule), metric, numbered(*values))) == stops


def test_patience_counts_evaluations_and_the_last_round_is_evaluated(tmp_path: Path) -> None:
    run = toys.play(tmp_path, rounds=30, local=FLAT, stop={"patience": 2}, evaluate={"every": 3})
    assert run.summary.last_round == 9  # evaluated in 3, 6 and 9: two without improvement
    assert run.metrics["round"].max() == 9
    accuracy = run.metrics[(run.metrics["round"] == 9) & (run.metrics["metric"] == "accuracy")]["value"]
    assert accuracy.tolist() == [run.summary.final]
    wanted = f"test/accuracy was not better than the {run.summary.best:g} of round 3 in 2 evaluations"
    assert run.summary.stopped == wanted
    assert us.load(tmp_path).summary == run.summary
    assert toys.manifest(tmp_path)["finished"]["stopped"] == wanted


def test_target(tmp_path: Path) -> None:
    whole = toys.play(tmp_path / "whole", rounds=6)
    curve = whole.metrics[(whole.metrics["metric"] == "loss") & (whole.metrics["round"] > 0)].set_index("round")[
        "value"
    ]
    goal = float(curve[4])
    assert (curve[:3] > goal).all(), "round 4 must be the first that is so good"
    run = toys.play(tmp_path / "run", rounds=6, stop={"metric": "test/loss", "target": goal})
    assert (run.summary.last_round, run.metrics["round"].max()) == (4, 4)
    assert "reached" in run.summary.stopped
    same = whole.metrics[whole.metrics["round"] <= 4]
    assert run.metrics["value"].tolist() == same["value"].tolist(), "what was played is what would have been played"


def test_run_that_needs_all_its_rounds_is_not_stopped(tmp_path: Path) -> None:
    run = toys.play(tmp_path / "run", stop={"target": 101.0})
    assert (run.summary.last_round, run.summary.stopped) == (3, "")
    toys.play(tmp_path / "free")
    one, other = (toys.rows_of(tmp_path / name).drop(columns="run") for name in ("run", "free"))
    assert one.equals(other)


@pytest.mark.parametrize("phase", ["train", "evaluate", "checkpoint"])
@pytest.mark.parametrize("round", [2, 3])
def test_interrupted_and_resumed_it_stops_in_the_same_round(phase: str, round: int, tmp_path: Path) -> None:
    """Round 3 is the last; after it, a resume must not play a fourth, and the exchange at the end is played once."""
    changes = {"method": "fedavg+toy-end", "rounds": 30, "local": FLAT, "stop": {"patience": 2}}
    toys.play(tmp_path / "whole", **changes)
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "run", phase=toys.stop_at(phase, round), **changes)
    run = toys.play(tmp_path / "run", resume=True, **changes)
    assert run.summary.last_round == 3
    assert run.summary.stopped == us.load(tmp_path / "whole").summary.stopped != ""
    toys.assert_same(tmp_path / "whole", tmp_path / "run")
    assert set(run.ledger[run.ledger["phase"] == "at the end"]["round"]) == {3}


def test_held_out_rows_decide_where_there_are_some(tmp_path: Path) -> None:
    run = toys.play(tmp_path, rounds=9, hold_out=0.25, local=FLAT, stop={"patience": 1})
    assert run.summary.stopped.startswith("validation/accuracy")
    assert not [line for line in us.load(tmp_path).about["header"] if line.startswith("stop") and "flatters" in line]


def test_header_says_when_the_test_rows_decide(tmp_path: Path) -> None:
    toys.play(tmp_path, stop={"patience": 5, "target": 99})
    (line,) = [line for line in us.load(tmp_path).about["header"] if line.startswith("stop")]
    for words in ("test/accuracy", "5 evaluations", "reaches 99", "flatters"):
        assert words in line


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"metric": "validation/loss", "patience": 1}, ["data.validation=0.1"]),
        ({"metric": "test/accuracy/3", "patience": 1}, ["0..2", "test/accuracy/3"]),
    ],
)
def test_metric_that_the_data_do_not_have_is_refused(rule: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(us.UserError) as told:
        toys.play(tmp_path / "run", stop=rule)
    assert all(word in str(told.value) for word in ("stop.metric", *words))
    assert not (tmp_path / "run").exists()


def test_stopping_is_part_of_the_identity_and_no_rule_is_not() -> None:
    plain = us.Experiment()
    assert plain.identity() != us.Experiment(stop={"patience": 3}).identity()
    assert "stop" not in plain.counting()


def test_command_says_why_it_stopped(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    said = unskew("run", recipe, "rounds=9", "local.lr=1e-9", "stop.patience=1", "--out", tmp_path / "run")
    assert said.code == 0
    assert "stopped after round 2: test/accuracy was not better" in said.out
