"""Loggers that get every round (`track: tensorboard` in a recipe): callbacks that come with the package."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unskew.base.config_base import dotted_keys
from unskew.base.errors import UserError
from unskew.runner.callbacks import Round

if TYPE_CHECKING:
    from unskew.config.experiment import Experiment
    from unskew.config.track_config import TrackConfig

LIBRARY = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
TRACKER = {"tensorboard": "TensorBoardTracker", "mlflow": "MlflowTracker", "wandb": "WandbTracker"}


@dataclass(frozen=True)
class TrackedRun:
    """A run as a logger gets it at the start."""

    run: str
    folder: Path
    settings: dict[str, Any]  # key with dots -> value
    first: int  # rounds that were run before, not 0 after a resume


class Tracker(Protocol):
    """One logger."""

    def __call__(self, done: Round) -> None: ...

    def close(self, failed: bool) -> None: ...


def check_installed(loggers: Sequence[TrackConfig]) -> None:
    """Refuse a logger whose package is not installed, before anything is read or written."""
    for config in loggers:
        try:
            importlib.import_module(LIBRARY[config.name])
        except ImportError as error:
            raise UserError(
                f"track: expected the package {config.name}, found {error}; type pip install 'unskew[track]' "
                "or remove track"
            ) from error


@contextlib.contextmanager
def open_trackers(experiment: Experiment, folder: Path, run: str, first: int) -> Iterator[list[Tracker]]:
    """All loggers of an experiment; they are closed in any case, with a flag if the run failed."""
    settings = {key: _plain(value) for key, value in dotted_keys(experiment.resolved()).items()}
    tracked = TrackedRun(run, folder, settings, first)
    with contextlib.ExitStack() as exits:
        trackers = []
        for config in experiment.track:
            trackers.append(_start(config, tracked))
            exits.push(partial(_close, trackers[-1]))
        yield trackers


def _close(tracker: Tracker, kind: type[BaseException] | None, *_: Any) -> None:
    try:
        tracker.close(kind is not None)
    except Exception as error:
        if kind is None:  # otherwise the first error is raised
            raise UserError(
                f"track: {type(tracker).__module__} did not close ({type(error).__name__}: {error}); every round is "
                "saved: continue with --resume, without track if necessary"
            ) from error


def _start(config: TrackConfig, tracked: TrackedRun) -> Tracker:
    module = importlib.import_module(f"unskew.runner.trackers.{config.name}")
    try:
        tracker: Tracker = getattr(module, TRACKER[config.name])(config, tracked)
        return tracker
    except Exception as error:
        raise UserError(
            f"track: {config.name} did not start ({type(error).__name__}: {error}); fix its setup or remove track, "
            "then continue with --resume"
        ) from error


def scores(done: Round) -> dict[str, float]:
    """The numbers for every logger: the server's scores, and each loss term's mean over the clients."""
    values = {f"{row.split}/{row.metric}": row.value for row in done.rows if row.who == "server"}
    terms: dict[str, list[float]] = {}
    for row in done.rows:
        if row.metric.startswith("loss/") and row.split == "train":
            terms.setdefault(f"train/{row.metric}", []).append(row.value)
    return values | {name: sum(losses) / len(losses) for name, losses in terms.items()} | {"best": done.best}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)
