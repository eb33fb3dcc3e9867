"""Loggers: the values they get, offline by default, missing packages named, and no effect on the results."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

import unskew as us

from . import toys
from .conftest import Command

Calls = list[tuple[Any, ...]]


class Recorder:
    """Records every call of a method on it."""

    def __init__(self, name: str, calls: Calls) -> None:
        self._name, self._calls = name, calls

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named: Any) -> Recorder:
            self._calls.append((f"{self._name}.{name}", args, named))
            return Recorder(f"{self._name}.{name}()", self._calls)

        return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """All three libraries as fakes."""
    recorded: Calls = []
    for name, module in (("mlflow", "mlflow"), ("wandb", "wandb"), ("tensorboard", "torch.utils.tensorboard")):
        fake = types.ModuleType(module)
        fake.__getattr__ = Recorder(name, recorded).__getattr__  # type: ignore[method-assign]
        monkeypatch.setitem(sys.modules, module, fake)
    return recorded


def of(calls: Calls, name: str) -> Calls:
    return [call for call in calls if call[0] == name]


def test_tensorboard_gets_every_round(calls: Calls, tmp_path: Path) -> None:
    run = toys.run(tmp_path, track="tensorboard")
    ((_, (folder,), named),) = of(calls, "tensorboard.SummaryWriter")
    assert (folder, named) == (str(tmp_path / "tensorboard"), {"purge_step": None})
    logged = {(name, step): value for _, (name, value, step), _ in of(calls, "tensorboard.SummaryWriter().add_scalar")}
    accuracy = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["round"] > 0)]["value"].tolist()
    assert [logged["test/accuracy", t] for t in (1, 2, 3)] == accuracy
    losses = run.metrics[(run.metrics["round"] == 2) & (run.metrics["metric"] == "loss/ce")]["value"]
    assert logged["train/loss/ce", 2] == pytest.approx(losses.mean())
    assert calls[-1][0].endswith("close")


def test_resumed_tensorboard_hides_the_repeated_rounds(calls: Calls, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, track="tensorboard", phase=toys.stop_at("merge", 3))
    toys.run(tmp_path, track={"name": "tensorboard", "dir": str(tmp_path / "other")}, resume=True)
    assert of(calls, "tensorboard.SummaryWriter")[1][1:] == ((str(tmp_path / "other"),), {"purge_step": 3})


def test_mlflow_gets_settings_and_rounds(calls: Calls, tmp_path: Path) -> None:
    toys.run(tmp_path, track={"name": "mlflow", "project": "skew", "dir": str(tmp_path / "ml")}, rounds=2)
    assert [name.removeprefix("mlflow.") for name, *_ in calls] == [
        "set_tracking_uri",
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_metrics",
        "end_run",
    ]
    assert of(calls, "mlflow.set_tracking_uri")[0][1] == (f"sqlite:///{tmp_path}/ml/mlflow.db",)
    assert of(calls, "mlflow.set_experiment")[0][1] == ("skew",)
    assert of(calls, "mlflow.log_params")[0][1][0]["local.lr"] == 0.05
    assert [named["step"] for *_, named in of(calls, "mlflow.log_metrics")] == [1, 2]
    assert of(calls, "mlflow.end_run")[0][1] == ("FINISHED",)


def test_mlflow_run_is_marked_as_failed(calls: Calls, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, track="mlflow", phase=toys.stop_at("merge", 2))
    assert of(calls, "mlflow.end_run")[0][1] == ("FAILED",)


@pytest.mark.parametrize(
    ("setting", "environment", "mode"),
    [
        (None, None, "offline"),
        ("online", None, "online"),
        (None, "disabled", "disabled"),
        ("offline", "online", "offline"),
    ],
)
def test_wandb_is_offline_by_default(
    setting: str | None,
    environment: str | None,
    mode: str,
    calls: Calls,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if environment:
        monkeypatch.setenv("WANDB_MODE", environment)
    run = toys.run(tmp_path, track={"name": "wandb", "project": "skew", "mode": setting}, rounds=1)
    ((_, _, named),) = of(calls, "wandb.init")
    assert (named["mode"], named["project"], named["resume"]) == (mode, "skew", "allow")
    assert named["id"] == run.metrics["run"].iloc[0]
    ((_, (scores,), step),) = of(calls, "wandb.init().log")
    assert (scores["test/accuracy"], step) == (run.summary.final, {"step": 1})
    assert of(calls, "wandb.init().finish")[0][2] == {"exit_code": 0}


def test_loggers_change_neither_results_nor_identity(calls: Calls, tmp_path: Path) -> None:
    toys.run(tmp_path / "without", method="moon")
    toys.run(tmp_path / "tracked", method="moon", track=["tensorboard", "mlflow", {"name": "wandb"}])
    toys.assert_same(tmp_path / "without", tmp_path / "tracked")
    assert us.Experiment().identity() == us.Experiment(track="wandb").identity()
    assert {name.partition(".")[0] for name, *_ in calls} == {"tensorboard", "mlflow", "wandb"}


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
@pytest.mark.usefixtures("no_data")
def test_missing_package_is_named_before_data_are_loaded(
    name: str, recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard" if name == "tensorboard" else name, None)
    result = unskew("run", recipe, f"track={name}", "--out", tmp_path / "run")
    assert (result.code, result.out) == (2, "")
    assert f"expected the package {name}" in result.err
    assert "pip install 'unskew[track]'" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("no_data")
def test_unknown_logger_is_refused(recipe: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "track=tensorbord")
    assert result.code == 2
    assert "track" in result.err
    assert "Expected one of tensorboard, mlflow, wandb" in result.err


def test_logger_that_fails_is_named_and_the_round_is_saved(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **named: Any) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(sys.modules["mlflow"], "log_metrics", fail, raising=False)
    with pytest.raises(
        us.UserError, match=r"unskew\.runner\.trackers\.mlflow.* failed after round 1 with ConnectionError: no server"
    ):
        toys.run(tmp_path / "run", track="mlflow")
    assert toys.manifest(tmp_path / "run")["round"] == 1
    monkeypatch.setattr(sys.modules["mlflow"], "start_run", fail, raising=False)
    with pytest.raises(us.UserError, match=r"track: mlflow did not start \(ConnectionError: no server\)"):
        toys.run(tmp_path / "other", track="mlflow")


def test_logger_that_cannot_close_is_named_and_the_run_can_be_resumed(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **named: Any) -> None:
        raise ConnectionError("no server")

    monkeypatch.setattr(sys.modules["mlflow"], "end_run", fail, raising=False)
    with pytest.raises(
        us.UserError, match=r"track: unskew\.runner\.trackers\.mlflow did not close \(ConnectionError: no server\)"
    ):
        toys.run(tmp_path / "run", track="mlflow")
    assert toys.manifest(tmp_path / "run")["round"] == 3
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "other", track="mlflow", phase=toys.stop_at("merge", 2))
    toys.run(tmp_path / "run", resume=True)
    toys.run(tmp_path / "without")
    toys.assert_same(tmp_path / "without", tmp_path / "run")


def test_real_tensorboard_reads_back_the_logged_values(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra track is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = toys.run(tmp_path, track="tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    logged = [event.value for event in events.Scalars("test/accuracy")]
    accuracy = run.metrics[(run.metrics["metric"] == "accuracy") & (run.metrics["round"] > 0)]["value"].tolist()
    assert logged == pytest.approx(accuracy)
