"""One run, from the first round to the folder that tells everything about it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unskew.base.config_base import dotted
from unskew.base.errors import UserError
from unskew.config.experiment import Experiment
from unskew.config.recipe import validate
from unskew.data import Dataset
from unskew.results.run_folder import STATE, RunFolder, check_whole, summary_in
from unskew.results.run_tables import LEDGER, METRICS, RowBuffer
from unskew.runner import trackers as track
from unskew.runner.callbacks import Callback, NoDisplay, ProgressDisplay
from unskew.runner.prepare_run import prepare
from unskew.runner.process_setup import on_device, precision, told_when_full
from unskew.runner.round_loop import RoundLoop, Run
from unskew.server.federation import Phase

__all__ = ["NoDisplay", "Run", "run"]


def run(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    name: str = "run",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    show: ProgressDisplay | None = None,
    phase: Phase | None = None,
) -> Run:
    """Play an experiment to its end and keep it in a folder.

    callbacks: each is called with a `Round` after every complete round and cannot change the run;
    phase: told where in a round the run is (tests).
    """
    if data is not None:
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"name": data.name})})
    if model is not None:
        experiment = experiment.model_copy(update={"model": experiment.model.model_copy(update={"name": "custom"})})
    identity = f"{name}-{experiment.label}-s{experiment.seed}-{experiment.identity()}"
    path = Path(out) if out else Path("runs") / identity
    track.check(experiment.track)
    watched = _checked(callbacks)
    folder = RunFolder(path)
    # Precision before workers are forked.
    with contextlib.closing(folder), told_when_full(path), precision(experiment.precision):
        manifest = _may_start(folder, experiment, resume)
        folder.forget_state()
        if manifest and manifest["finished"]:
            return finished_run(path, manifest)
        try:
            root = Path(data_dir) if data_dir else None
            ready = prepare(experiment, data=data, model=model, data_dir=root, state_dir=path / STATE)
        except UserError:
            folder.discard_if_empty()
            raise
        store, engine = ready.federation.store, ready.federation.engine
        with contextlib.closing(store), contextlib.closing(engine), on_device(engine.device):
            return RoundLoop(ready, folder, identity, show or NoDisplay(), watched, phase).play(manifest)


def _checked(callbacks: Sequence[Callback]) -> list[Callback]:
    if not isinstance(callbacks, list | tuple) or not all(callable(each) for each in callbacks):
        raise UserError(f"callbacks: expected a list of functions such as [print], found {callbacks!r}")
    return list(callbacks)


def _may_start(folder: RunFolder, experiment: Experiment, resume: bool) -> dict[str, Any] | None:
    """The checkpoint to go on from, None to start at round 1, or a refusal."""
    if not folder.has_run:
        return None
    if not resume:
        raise UserError(f"{folder.path} holds a run already; add --resume to go on with it, or choose another --out")
    old = validate(folder.read_config(), f"{folder.path}/config.yaml")
    if old.identity() != experiment.identity():
        before, after = dotted(old.counting()), dotted(experiment.counting())
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        changes = "; ".join(f"{k} was {before.get(k)!r}, is now {after.get(k)!r}" for k in keys)
        raise UserError(
            f"{folder.path}: expected the settings this run began with, found others: {changes}; "
            "resume with the same settings or choose another --out"
        )
    return folder.manifest


def finished_run(path: Path, manifest: dict[str, Any]) -> Run:
    """A run that was played before."""
    kept = path / manifest["folder"]
    check_whole(path, manifest["files"])
    metrics, ledger = RowBuffer.read(METRICS, kept / "metrics.parquet"), RowBuffer.read(LEDGER, kept / "ledger.parquet")
    return Run(path, summary_in(manifest, path), metrics.frame(), ledger.frame())
