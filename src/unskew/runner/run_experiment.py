"""`run`: start a run, resume it, or return a finished one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from unskew.base.config_base import dotted_keys
from unskew.base.errors import UserError
from unskew.base.paths import folder_path
from unskew.config.experiment import Experiment
from unskew.config.recipe import read_recorded
from unskew.data import Dataset
from unskew.results.run_folder import STATE, RunFolder, check_hashes, read_summary
from unskew.results.run_tables import LEDGER, METRICS, RowBuffer
from unskew.runner import more_rounds, trackers
from unskew.runner.callbacks import Callback, NoDisplay, ProgressDisplay, display_for
from unskew.runner.prepare_run import check_same_inputs, prepare
from unskew.runner.process_setup import explain_full_disk, on_device, precision
from unskew.runner.round_loop import RoundLoop, Run
from unskew.server.federation import PhaseCallback

__all__ = ["NoDisplay", "Run", "run"]


def run(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    resume: bool = True,
    name: str = "run",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
    show: ProgressDisplay | bool | None = None,
    phase: PhaseCallback | None = None,
    patience: float = 0.0,
) -> Run:
    """Run an experiment to its end and save it in a folder, continuing or returning the run that is there.

    out: the folder of the run; default: one under `runs/` that its settings name; resume: False refuses a folder that
    holds the run already; data, model: a dataset and a network from Python, instead of the names in the experiment;
    show: the progress, None for a bar in notebooks and terminals, False for nothing;
    callbacks: each is called with a `Round` after every complete round and cannot change the run;
    phase: called with (name, round) after each phase of a round, for tests;
    patience: seconds to wait for another process that writes this run.
    """
    if data is not None:
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"name": data.name})})
    if model is not None:
        experiment = experiment.model_copy(update={"model": experiment.model.model_copy(update={"name": "custom"})})
    identity = f"{name}-{experiment.label}-s{experiment.seed}-{experiment.identity()}"
    path = Path("runs") / identity if out is None else folder_path(out)
    trackers.check_installed(experiment.track)
    callback_list = _check_callbacks(callbacks)
    folder = RunFolder(path, patience)
    # Precision is set before workers are forked.
    with contextlib.closing(folder), explain_full_disk(path), precision(experiment.precision):
        manifest = _checkpoint_to_resume(folder, experiment, resume)
        folder.remove_leftover_state()
        root = Path(data_dir) if data_dir else None
        if manifest and _has_all_rounds(manifest, experiment):
            check_same_inputs(manifest, path, experiment, data, model)
            return read_finished_run(path, manifest)
        try:
            prepared = prepare(experiment, data=data, model=model, data_dir=root, state_dir=path / STATE)
        except UserError:
            folder.discard_if_empty()
            raise
        store, engine = prepared.federation.store, prepared.federation.engine
        with contextlib.closing(store), contextlib.closing(engine), on_device(engine.device):
            return RoundLoop(prepared, folder, identity, display_for(show), callback_list, phase).run(manifest)


def _check_callbacks(callbacks: Sequence[Callback]) -> list[Callback]:
    if not isinstance(callbacks, list | tuple) or not all(callable(each) for each in callbacks):
        raise UserError(f"callbacks: expected a list of functions such as [print], found {callbacks!r}")
    return list(callbacks)


def _checkpoint_to_resume(folder: RunFolder, experiment: Experiment, resume: bool) -> dict[str, Any] | None:
    """The manifest to resume from, or None to start at round 1; raises if the folder has another run."""
    folder.check_complete()
    if not folder.has_run:
        return None
    old = read_recorded(folder.read_config(), f"{folder.path}/config.yaml")
    manifest = folder.manifest
    if more_rounds.is_longer(old, experiment):
        if reasons := more_rounds.reasons_against(old, experiment, manifest):
            raise UserError(
                f"{folder.path}: rounds was {old.rounds} and cannot become {experiment.rounds}, because past rounds "
                f"would have been others: {'; '.join(reasons)}; choose another --out"
            )
    elif old.identity() != experiment.identity():
        _check_same_code(folder.path, old, experiment)
        before, after = dotted_keys(old.identity_settings()), dotted_keys(experiment.identity_settings())
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        changes = "; ".join(f"{k} was {before.get(k)!r}, is now {after.get(k)!r}" for k in keys)
        raise UserError(
            f"{folder.path}: expected the settings this run was started with, found others: {changes}; "
            "resume with the same settings or choose another --out"
        )
    _check_recording(folder.path, old, experiment, manifest)
    if not resume:
        raise UserError(
            f"{folder.path} already holds this run, {_progress(manifest, experiment.rounds)}, or choose another --out"
        )
    return manifest


def _check_recording(folder: Path, old: Experiment, new: Experiment, manifest: dict[str, Any] | None) -> None:
    """Refuse to record the messages of rounds that are over."""
    past = range(1, manifest["round"] + 1 if manifest else 1)
    before = old.record.rounds if old.record.clients in ("all", new.record.clients) else ()
    if late := sorted({r for r in new.record.rounds if r in past} - set(before)):
        raise UserError(
            f"{folder}: record.rounds: round {late[0]} is over and its messages were not recorded; choose another "
            "--out to run it again and record them"
        )


def _has_all_rounds(manifest: dict[str, Any], experiment: Experiment) -> bool:
    """Whether a run is finished, also if it is asked for more rounds: after an early stop there are none.

    A round that was evaluated only because it was the last one may stop no longer run.
    """
    finished, due = manifest["finished"], manifest["round"] % experiment.evaluate.every == 0
    return bool(finished) and (manifest["round"] >= experiment.rounds or bool(finished.get("stopped") and due))


def _check_same_code(folder: Path, old: Experiment, new: Experiment) -> None:
    """Refuse to resume with another version of the user's own code."""
    before, now = ({used.file: used for used in each.imports} for each in (old, new))
    for name in before.keys() & now.keys():
        if before[name].sha256 != now[name].sha256:
            raise UserError(
                f"{folder}: {before[name].describe()} was changed since this run was started; its old contents are in "
                f"{folder}/imports/{before[name].copy_name}: restore them or choose another --out"
            )


def _progress(manifest: dict[str, Any] | None, rounds: int) -> str:
    """How far a run is, and what --resume would do."""
    if manifest is None:
        return "stopped before its first checkpoint; add --resume to start it again"
    if not manifest["finished"]:
        return f"stopped after round {manifest['round']} of {rounds}; add --resume to continue it"
    summary = manifest["finished"]
    then = f"continue it to round {rounds}" if manifest["round"] < rounds else "show its result again"
    return (
        f"finished (best {summary['best']:.2f} % in round {summary['best_round']}, final {summary['final']:.2f} %); "
        f"add --resume to {then}"
    )


def read_finished_run(path: Path, manifest: dict[str, Any]) -> Run:
    """The result of a run that is already finished."""
    checkpoint = path / manifest["folder"]
    check_hashes(path, manifest["files"] | manifest["kept"])
    metrics, ledger = (
        RowBuffer.read(METRICS, checkpoint / "metrics.parquet"),
        RowBuffer.read(LEDGER, checkpoint / "ledger.parquet"),
    )
    return Run(path, read_summary(manifest, path), metrics.frame(), ledger.frame())
