"""Early stopping by patience and by target, the same after a resume, and reported in the summary."""

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
        ({"patience": 1}, "test/loss", [float("nan"), 0.7], False),  # any number is better than nan
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
    run = toys.run(tmp_path, rounds=30, local=FLAT, stop={"patience": 2}, evaluate={"every": 3})
    assert run.summary.last_round == 9  # evaluated in 3, 6 and 9: two without improvement
    assert run.metrics["round"].max() == 9
    accuracy = run.metrics[(run.metrics["round"] == 9) & (run.metrics["metric"] == "accuracy")]["value"]
    assert accuracy.tolist() == [run.summary.final]
    reason = f"test/accuracy was not better than the {run.summary.best:g} of round 3 in 2 evaluations"
    assert run.summary.stopped == reason
    assert us.load(tmp_path).summary == run.summary
    assert toys.manifest(tmp_path)["finished"]["stopped"] == reason


def test_run_stops_once_the_target_is_reached(tmp_path: Path) -> None:
    full = toys.run(tmp_path / "full", rounds=6)
    curve = full.metrics[(full.metrics["metric"] == "loss") & (full.metrics["round"] > 0)].set_index("round")["value"]
    target = float(curve[4])
    assert (curve[:3] > target).all(), "round 4 must be the first to reach the target"
    run = toys.run(tmp_path / "run", rounds=6, stop={"metric": "test/loss", "target": target})
    assert (run.summary.last_round, run.metrics["round"].max()) == (4, 4)
    assert "reached" in run.summary.stopped
    same = full.metrics[full.metrics["round"] <= 4]
    assert run.metrics["value"].tolist() == same["value"].tolist(), "stopping must not change the rounds before it"


def test_run_that_needs_all_its_rounds_is_not_stopped(tmp_path: Path) -> None:
    run = toys.run(tmp_path / "run", stop={"target": 101.0})
    assert (run.summary.last_round, run.summary.stopped) == (3, "")
    toys.run(tmp_path / "free")
    one, other = (toys.rows_of(tmp_path / name).drop(columns="run") for name in ("run", "free"))
    assert one.equals(other)


@pytest.mark.parametrize("phase", ["train", "evaluate", "checkpoint"])
@pytest.mark.parametrize("round", [2, 3])
def test_resumed_run_stops_in_the_same_round(phase: str, round: int, tmp_path: Path) -> None:
    """Round 3 is the last: a resume must not run a fourth, and the exchange at the end runs once."""
    changes = {"method": "fedavg+toy-end", "rounds": 30, "local": FLAT, "stop": {"patience": 2}}
    toys.run(tmp_path / "full", **changes)
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "run", phase=toys.stop_at(phase, round), **changes)
    run = toys.run(tmp_path / "run", resume=True, **changes)
    assert run.summary.last_round == 3
    assert run.summary.stopped == us.load(tmp_path / "full").summary.stopped != ""
    toys.assert_same(tmp_path / "full", tmp_path / "run")
    assert set(run.ledger[run.ledger["phase"] == "at the end"]["round"]) == {3}


def test_held_out_rows_are_the_default_metric(tmp_path: Path) -> None:
    run = toys.run(tmp_path, rounds=9, hold_out=0.25, local=FLAT, stop={"patience": 1})
    assert run.summary.stopped.startswith("validation/accuracy")
    assert not [line for line in us.load(tmp_path).about["header"] if line.startswith("stop") and "optimistic" in line]


def test_header_warns_if_the_test_rows_choose_the_round(tmp_path: Path) -> None:
    toys.run(tmp_path, stop={"patience": 5, "target": 99})
    (line,) = [line for line in us.load(tmp_path).about["header"] if line.startswith("stop")]
    for words in ("test/accuracy", "5 evaluations", "reaches 99", "optimistic"):
        assert words in line


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"metric": "validation/loss", "patience": 1}, ["data.validation=0.1"]),
        ({"metric": "test/accuracy/3", "patience": 1}, ["0..2", "test/accuracy/3"]),
    ],
)
def test_metric_that_the_data_do_not_have_is_refused(rule: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(us.UserError) as error:
        toys.run(tmp_path / "run", stop=rule)
    assert all(word in str(error.value) for word in ("stop.metric", *words))
    assert not (tmp_path / "run").exists()


def test_identity_includes_stopping_only_if_set() -> None:
    plain = us.Experiment()
    assert plain.identity() != us.Experiment(stop={"patience": 3}).identity()
    assert "stop" not in plain.identity_settings()


def test_command_prints_why_it_stopped(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "rounds=9", "local.lr=1e-9", "stop.patience=1", "--out", tmp_path / "run")
    assert result.code == 0
    assert "stopped after round 2: test/accuracy was not better" in result.out
