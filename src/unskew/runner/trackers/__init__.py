"""Loggers that are told every round (`track: tensorboard` in a recipe): callbacks that come with the package."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unskew.base.config_base import dotted
from unskew.base.errors import UserError
from unskew.runner.callbacks import Round

if TYPE_CHECKING:
    from unskew.config.experiment import Experiment
    from unskew.config.track_config import TrackConfig

LIBRARY = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow", "wandb": "wandb"}
TRACKER = {"tensorboard": "TensorBoardTracker", "mlflow": "MlflowTracker", "wandb": "WandbTracker"}


@dataclass(frozen=True)
class TrackedRun:
    """What a logger is told at the start."""

    run: str
    folder: Path
    settings: dict[str, Any]  # key with dots -> value
    first: int  # rounds played before, not 0 after a resume


class Tracker(Protocol):
    """One logger."""

    def __call__(self, done: Round) -> None: ...

    def close(self, failed: bool) -> None: ...


def check(wanted: Sequence[TrackConfig]) -> None:
    """Refuse a logger whose package is absent, before anything is read or written."""
    for config in wanted:
        try:
            importlib.import_module(LIBRARY[config.name])
        except ImportError as error:
            raise UserError(
                f"track: expected the package {config.name}, found {error}; type pip install 'unskew[track]' "
                "or leave track out"
            ) from error


@contextlib.contextmanager
def opened(experiment: Experiment, folder: Path, run: str, first: int) -> Iterator[list[Tracker]]:
    """All loggers of an experiment; they are closed whatever happens, and told whether it went well."""
    settings = {key: _plain(value) for key, value in dotted(experiment.resolved()).items()}
    subject = TrackedRun(run, folder, settings, first)
    with contextlib.ExitStack() as all_of:
        trackers = []
        for config in experiment.track:
            trackers.append(_open(config, subject))
            all_of.push(partial(_close, trackers[-1]))
        yield trackers


def _close(tracker: Tracker, kind: type[BaseException] | None, *_: Any) -> None:
    try:
        tracker.close(kind is not None)
    except Exception as error:
        if kind is None:  # else what went wrong first is what counts
            raise UserError(
                f"track: {type(tracker).__module__} did not end ({type(error).__name__}: {error}); every round is "
                "saved: go on with --resume, without track if need be"
            ) from error


def _open(config: TrackConfig, subject: TrackedRun) -> Tracker:
    module = importlib.import_module(f"unskew.runner.trackers.{config.name}")
    try:
        tracker: Tracker = getattr(module, TRACKER[config.name])(config, subject)
        return tracker
    except Exception as error:
        raise UserError(
            f"track: {config.name} did not start ({type(error).__name__}: {error}); mend its set-up or leave track "
            "out, then go on with --resume"
        ) from error


def scores(done: Round) -> dict[str, float]:
    """What every logger is given: the server's scores, and each loss term's mean over the clients."""
    values = {f"{row.split}/{row.metric}": row.value for row in done.rows if row.who == "server"}
    terms: dict[str, list[float]] = {}
    for row in done.rows:
        if row.metric.startswith("loss/") and row.split == "train":
            terms.setdefault(f"train/{row.metric}", []).append(row.value)
    return values | {name: sum(seen) / len(seen) for name, seen in terms.items()} | {"best": done.best}


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)
