"""One run, from the first round to the folder that tells everything about it."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from torch import nn

from unskew.core.client import own
from unskew.core.federation import Phase
from unskew.core.server import Report, Snapshot
from unskew.core.state import Tree, flatten
from unskew.data import Dataset
from unskew.engine.base import Score, sum_of, to_device
from unskew.engine.workers import to_bytes
from unskew.environment import describe
from unskew.errors import UserError
from unskew.experiment import Experiment
from unskew.prepare import Prepared, prepare
from unskew.process import precision, uninterrupted
from unskew.recipe import validate
from unskew.results.folder import Folder
from unskew.results.rows import RowMaker, accuracy
from unskew.results.tables import Summary, best_of, summarise


class Show(Protocol):
    """Who is told how a run goes."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def end(self) -> None: ...


class Silent:
    """Nobody is told."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    summary: Summary
    metrics: pd.DataFrame
    ledger: pd.DataFrame


def run(
    experiment: Experiment,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    name: str = "run",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: str | Path | None = None,
    show: Show | None = None,
    phase: Phase | None = None,
) -> Run:
    """Play an experiment to its end and keep it in a folder. `phase` is told where in a round the run is (tests)."""
    if data is not None:
        experiment = experiment.model_copy(update={"data": experiment.data.model_copy(update={"name": data.name})})
    if model is not None:
        experiment = experiment.model_copy(update={"model": experiment.model.model_copy(update={"name": "custom"})})
    identity = f"{name}-{experiment.label}-s{experiment.seed}-{experiment.identity()}"
    path = Path(out) if out else Path("runs") / identity
    folder = Folder(path)
    with contextlib.closing(folder), precision(experiment.precision):  # before workers are forked
        manifest = _may_start(folder, experiment, resume)
        if manifest and manifest["finished"]:
            return finished_run(path, manifest)
        try:
            ready = prepare(experiment, data=data, model=model, data_dir=Path(data_dir) if data_dir else None)
        except UserError:
            folder.discard_if_empty()
            raise
        with contextlib.closing(ready.federation.engine):
            return _Player(ready, folder, identity, show or Silent(), phase).play(manifest)


def _may_start(folder: Folder, experiment: Experiment, resume: bool) -> dict[str, Any] | None:
    """The checkpoint to go on from, None to start at round 1, or a refusal."""
    if not folder.has_run:
        return None
    if not resume:
        raise UserError(f"{folder.path} holds a run already; add --resume to go on with it, or choose another --out")
    old = validate(folder.read_config(), f"{folder.path}/config.yaml")
    if old.identity() != experiment.identity():
        before, after = _leaves(old.counting()), _leaves(experiment.counting())
        keys = [k for k in {**before, **after} if before.get(k) != after.get(k)]
        changes = "; ".join(f"{k} was {before.get(k)!r}, is now {after.get(k)!r}" for k in keys)
        raise UserError(
            f"{folder.path}: expected the settings this run began with, found others: {changes}; "
            "resume with the same settings or choose another --out"
        )
    return folder.manifest


def _leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix: tree}
    return {k: v for key, value in tree.items() for k, v in _leaves(value, f"{prefix}.{key}".lstrip(".")).items()}


class _Player:
    """Rounds, evaluation, rows and checkpoints of one run."""

    def __init__(self, ready: Prepared, folder: Folder, identity: str, show: Show, phase: Phase | None) -> None:
        self.ready, self.folder, self.show = ready, folder, show
        self.rows = RowMaker(identity, ready.experiment.label, ready.experiment.seed)
        keeps = ready.experiment.record.keeps
        self.federation = replace(ready.federation, keeps=keeps, phase=phase or (lambda name, round: None))
        self.experiment, self.store = ready.experiment, ready.federation.store
        self._saved_at, self._saved_round, self._best = time.monotonic(), -1, 0.0
        self._environment = describe(ready.federation.engine)  # now: the checkout may change while the run goes on
        self._last: Snapshot | None = None  # the last complete round, with rows and client state to match

    def play(self, manifest: dict[str, Any] | None) -> Run:
        """All rounds from the checkpoint on. An interruption saves the last complete round before it goes up."""
        snap = self._open(manifest)
        self.show.begin(self.ready.header, snap.round, self.experiment.rounds)
        try:
            while snap.round < self.experiment.rounds:
                snap = self._round(snap)
            return self._finish(snap)
        except BaseException:
            self.store.rollback()
            if self.folder.has_run and self._last is not None:
                self._save(self._last)
            raise
        finally:
            self.show.end()

    def _open(self, manifest: dict[str, Any] | None) -> Snapshot:
        """The state to start from: a checkpoint, or the beginning with the untrained model evaluated."""
        federation, engine = self.federation, self.federation.engine
        if manifest is not None:
            self._check_world(manifest["world"])
            snap = self.folder.load(manifest, self.store, engine.device)
            federation.model.initial = self.folder.read_initial()
            self._last, self._saved_round = snap, snap.round
            self._best = best_of(self.folder.tables["metrics"].frame())
            return snap
        snap = self._last = federation.start()
        self.folder.write_initial(federation.model.initial)
        self._write_counts()
        self.folder.tables["metrics"].add(self.rows.scores(0, self._scores(snap)))
        self.folder.write_config(self.experiment.resolved(), self._environment, self._about())
        return snap

    def _about(self) -> dict[str, Any]:
        """What a reader of the folder must know beyond the settings."""
        dataset = self.ready.dataset
        return {"header": self.ready.header, "classes": list(dataset.classes), "shape": list(dataset.shape)}

    def _check_world(self, before: dict[str, str]) -> None:
        """A run goes on with the data, partition and model it began with."""
        other = [name for name, now in self.ready.world.items() if before.get(name) != now]
        if other:
            raise UserError(
                f"{self.folder.path}: expected the {' and '.join(other)} this run began with, found other contents; "
                "resume with the same or choose another --out"
            )

    def _round(self, before: Snapshot) -> Snapshot:
        """One round with its rows; complete, it becomes what an interruption would save."""
        began = time.monotonic()
        snap, report = self.federation.play(before)
        trained = time.monotonic()
        due = snap.round % self.experiment.evaluate.every == 0 or snap.round == self.experiment.rounds
        scores = self._scores(snap) if due else {}
        self.federation.phase("evaluate", snap.round)
        self._keep_messages(snap.round, report)
        self._complete(snap, report, scores, [("train", trained - began), ("evaluate", time.monotonic() - trained)])
        if time.monotonic() - self._saved_at >= self.experiment.checkpoint.seconds:
            self._save(snap)
        now = accuracy(scores["test"]) if scores else None
        self._best = max(self._best, now or 0.0)
        self.show.round(snap.round, now, self._best)
        self.federation.phase("checkpoint", snap.round)
        return snap

    def _complete(
        self, snap: Snapshot, report: Report, scores: dict[str, Score], times: list[tuple[str, float]]
    ) -> None:
        """Rows, client state and snapshot of a round, together: an interruption sees all of them or none."""
        rows = [*self.rows.scores(snap.round, scores), *self.rows.terms(snap.round, report)]
        with uninterrupted():
            self.folder.tables["metrics"].add(rows)
            self.folder.tables["ledger"].add(snap.ledger.entries)
            self.folder.tables["times"].add((snap.round, what, seconds) for what, seconds in times)
            self.store.commit()
            self._last = snap

    def _finish(self, snap: Snapshot) -> Run:
        """Exchanges at the end, and the files that people read. What happens here is saved whole or played again."""
        self._save(snap)
        closed, report = self.federation.close(snap)
        self._keep_messages(snap.round, report)
        rows = list(self.rows.terms(snap.round, report))
        if closed.ledger.entries:  # an exchange at the end may have changed the model
            rows += self.rows.scores(snap.round, self._scores(closed), "end of run ")
        self._last = None
        self.store.commit()
        self.folder.tables["ledger"].add(closed.ledger.entries)
        self.folder.tables["metrics"].add(rows)
        times = self.folder.tables["times"].frame()
        summary = summarise(
            str(self.folder.path),
            self.experiment.label,
            self.folder.tables["metrics"].frame(),
            closed.ledger.bytes_up,
            closed.ledger.bytes_down,
            float(times["seconds"].sum()),
        )
        padding = {"padding_share": self.federation.engine.padding_share}
        self.folder.write_environment(self._environment | padding)
        self.folder.finish({name: t.cpu() for name, t in closed.model.items()})
        self.folder.save(closed, self.store, self.ready.world, finished=vars(summary))
        return Run(
            self.folder.path, summary, self.folder.tables["metrics"].frame(), self.folder.tables["ledger"].frame()
        )

    def _save(self, snap: Snapshot) -> None:
        if snap.round != self._saved_round:
            self.folder.save(snap, self.store, self.ready.world)
            self._saved_round, self._saved_at = snap.round, time.monotonic()

    def _scores(self, snap: Snapshot) -> dict[str, Score]:
        """Scores of the server's model; where clients keep tensors of their own, of this round's clients together."""
        federation = self.federation.in_force(snap.round)
        received = federation.received(snap)
        seen = [received]
        if federation.model.private and snap.round:
            trained = [k for k in federation.plan.participants(snap.round) if federation.rows[k]]
            seen = [own(received, self._on_device(k)) for k in trained] or seen
        splits = ("validation", "test") if self.ready.dataset.validation else ("test",)
        return {split: sum_of(federation.engine.evaluate(snap.round, r, split) for r in seen) for split in splits}

    def _on_device(self, client: int) -> Tree:
        return to_device(self.store.get(client), self.federation.engine.device)

    def _keep_messages(self, round: int, report: Report) -> None:
        for name, message in report.messages.items():
            self.folder.write(f"messages/{round:06d}-{name}.safetensors", to_bytes(flatten(message)))

    def _write_counts(self) -> None:
        counts = self.ready.counts
        rows = [(k, c, int(counts[k, c])) for k in range(counts.shape[0]) for c in range(counts.shape[1])]
        frame = pd.DataFrame(rows, columns=["client", "class", "rows"])
        self.folder.write("clients.parquet", frame.to_parquet(index=False))


def finished_run(path: Path, manifest: dict[str, Any]) -> Run:
    """A run that was played before."""
    metrics, ledger = (pd.read_parquet(path / manifest["folder"] / f"{name}.parquet") for name in ("metrics", "ledger"))
    return Run(path, Summary(**manifest["finished"] | {"run": str(path)}), metrics, ledger)
