"""The rounds of one run: play, score, keep, tell, and leave a folder that tells everything about it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import UserError
from unskew.base.signals import uninterrupted
from unskew.base.tree import Tree, flatten
from unskew.client.client_rows import to_device
from unskew.client.round import with_private
from unskew.engines.engine import ConfusionScore, sum_of
from unskew.results.metric_rows import MetricRow, MetricRows, accuracy
from unskew.results.recorded_messages import to_files
from unskew.results.run_folder import RunFolder
from unskew.results.run_tables import CLIENTS, RowBuffer, Summary, best_of, summarise
from unskew.runner.callbacks import Callback, ProgressDisplay, Round, tell
from unskew.runner.prepare_run import PreparedRun
from unskew.runner.provenance import describe
from unskew.runner.trackers import opened
from unskew.server.federation import Phase
from unskew.server.loss_check import NotFiniteError
from unskew.server.snapshot import RoundReport, Snapshot

if TYPE_CHECKING:
    import pandas as pd


NOTED = 3  # refused replies of a round that are shown


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    summary: Summary
    metrics: pd.DataFrame
    ledger: pd.DataFrame


class RoundLoop:
    """Rounds, evaluation, rows and checkpoints of one run."""

    def __init__(
        self,
        ready: PreparedRun,
        folder: RunFolder,
        identity: str,
        show: ProgressDisplay,
        callbacks: list[Callback],
        phase: Phase | None,
    ) -> None:
        self.ready, self.folder, self.show, self.callbacks = ready, folder, show, callbacks
        self.rows = MetricRows(identity, ready.experiment.label, ready.experiment.seed)
        keeps = ready.experiment.record.keeps
        self.federation = replace(ready.federation, keeps=keeps, phase=phase or (lambda name, round: None))
        self.experiment, self.store, self.stop = ready.experiment, ready.federation.store, ready.stop
        self._saved_at, self._saved_round, self._best = time.monotonic(), -1, 0.0
        self._environment = describe(ready.federation.engine)  # now: the checkout may change while the run goes on
        self._last: Snapshot | None = None  # the last complete round, with rows and client state to match

    def play(self, manifest: dict[str, Any] | None) -> Run:
        """All rounds from the checkpoint on. An interruption saves the last complete round before it goes up."""
        snap = self._open(manifest)
        self.show.begin(self.ready.header, snap.round, self.experiment.rounds)
        try:
            with opened(self.experiment, self.folder.path, self.rows.run, snap.round) as trackers:
                self.callbacks += trackers
                while snap.round < self.experiment.rounds and not self.stop.reason:
                    snap = self._round(snap)
            return self._finish(snap)
        except BaseException as error:
            self.store.rollback()
            if self.folder.has_run and self._last is not None:
                self._save(self._last)
                if isinstance(error, NotFiniteError):
                    raise self._diverged(error, self._last.round) from error
            raise
        finally:
            self.show.end()

    def _diverged(self, error: NotFiniteError, last: int) -> UserError:
        lr, kept = self.experiment.local.lr, f"{self.folder.path}/checkpoint"
        return UserError(
            f"{error}; try a lower local.lr (it is {lr:g}) or a limit such as local.clip=1, with another --out; "
            f"round {last}, the last good one, is kept in {kept}"
        )

    def _open(self, manifest: dict[str, Any] | None) -> Snapshot:
        """The state to start from: a checkpoint, or the beginning with the untrained model evaluated."""
        federation, engine = self.federation, self.federation.engine
        if manifest is not None:
            self._check_world(manifest["world"])
            snap = self.folder.load(manifest, self.store, engine.device)
            if "last_round" not in manifest:  # of the version before this one
                self._check_parts(snap)
            federation.model.initial.update(self.folder.read_initial())
            self._last, self._saved_round = snap, snap.round
            metrics = self.folder.tables["metrics"].frame()
            self._best = best_of(metrics)
            self.stop.add(map(MetricRow._make, metrics[metrics["who"] == "server"].itertuples(index=False)))
            return snap
        snap = self._last = federation.start()
        self.folder.write_initial(federation.model.initial)
        self.folder.tables["metrics"].add(self.rows.scores(0, self._scores(snap)))
        self.folder.write_config(self.experiment.resolved(), self._environment, self._about())
        return snap

    def _about(self) -> dict[str, Any]:
        """What a reader of the folder must know beyond the settings."""
        dataset = self.ready.dataset
        scale = {"mean": dataset.mean, "std": dataset.std}
        return {"header": self.ready.header, "classes": list(dataset.classes), "shape": list(dataset.shape)} | scale

    def _check_world(self, before: dict[str, str]) -> None:
        """A run goes on with the data, partition and model it began with."""
        other = [name for name, now in self.ready.world.items() if before.get(name) != now]
        if other:
            raise UserError(
                f"{self.folder.path}: expected the {' and '.join(other)} this run began with, found other contents; "
                "resume with the same or choose another --out"
            )

    def _check_parts(self, snap: Snapshot) -> None:
        """What parts keep must have the names that they know: another version may have had others."""
        for part, state in self.federation.start().parts.items():
            if missing := sorted(flatten(state).keys() - flatten(snap.parts.get(part, {})).keys()):
                raise UserError(
                    f"{self.folder.path}: expected {missing[0]} in the state of part {part}, found none: the "
                    "checkpoint is of another version of unskew; finish this run with that version, or start with "
                    "another --out"
                )

    def _round(self, before: Snapshot) -> Snapshot:
        """One round with its rows; complete, it becomes what an interruption would save."""
        began = time.monotonic()
        snap, report = self.federation.play(before)
        trained = time.monotonic()
        due = snap.round % self.experiment.evaluate.every == 0 or snap.round == self.experiment.rounds
        scores = self._scores(snap) if due else {}
        self.federation.phase("evaluate", snap.round)
        self._keep_messages(snap)
        times = [("train", trained - began), ("evaluate", time.monotonic() - trained)]
        rows = self._complete(snap, report, scores, times)
        if time.monotonic() - self._saved_at >= self.experiment.checkpoint.seconds:
            self._save(snap)
        now = accuracy(scores["test"]) if scores else None
        self._best = max(self._best, now or 0.0)
        for line in _notes(snap, report):
            self.show.note(line)
        self.show.round(snap.round, now, self._best)
        tell(self.callbacks, Round(snap.round, rows, now, self._best))
        self.federation.phase("checkpoint", snap.round)
        return snap

    def _complete(
        self, snap: Snapshot, report: RoundReport, scores: dict[str, ConfusionScore], times: list[tuple[str, float]]
    ) -> tuple[MetricRow, ...]:
        """Rows, client state and snapshot of a round, together: an interruption sees all of them or none."""
        rows = (*self.rows.scores(snap.round, scores), *self.rows.terms(snap.round, report))
        with uninterrupted():
            self.folder.tables["metrics"].add(rows)
            self.folder.tables["ledger"].add(snap.ledger.entries)
            self.folder.tables["times"].add((snap.round, what, seconds) for what, seconds in times)
            self.store.commit()
            self._last = snap
        self.stop.add(rows)
        return rows

    def _finish(self, snap: Snapshot) -> Run:
        """Exchanges at the end, and the files that people read. What happens here is saved whole or played again."""
        self._save(snap)
        closed, report = self.federation.close(snap)
        for line in _notes(closed, report):
            self.show.note(line)
        self._keep_messages(closed)
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
        summary = replace(summary, last_round=snap.round, stopped=self.stop.reason)
        padding = {"padding_share": self.federation.engine.padding_share}
        self.folder.write_environment(self._environment | padding)
        self._write_counts()
        self.folder.finish({name: t.cpu() for name, t in closed.model.items()})
        self.folder.save(closed, self.store, self.ready.world, finished=vars(summary))
        return Run(
            self.folder.path, summary, self.folder.tables["metrics"].frame(), self.folder.tables["ledger"].frame()
        )

    def _save(self, snap: Snapshot) -> None:
        if snap.round != self._saved_round:
            self.folder.save(snap, self.store, self.ready.world)
            self._saved_round, self._saved_at = snap.round, time.monotonic()

    def _scores(self, snap: Snapshot) -> dict[str, ConfusionScore]:
        """Scores of the server's model; where clients keep tensors of their own, of this round's clients together."""
        federation = self.federation.at_round(snap.round)
        received = federation.received(snap)
        seen = [received]
        if federation.model.private and snap.round:
            trained = sorted(snap.answered)
            seen = [with_private(received, self._on_device(k)) for k in trained] or seen
        splits = ("validation", "test") if self.ready.dataset.validation else ("test",)
        return {split: sum_of(federation.engine.evaluate(snap.round, r, split) for r in seen) for split in splits}

    def _on_device(self, client: int) -> Tree:
        return to_device(self.store.get(client), self.federation.engine.device)

    def _keep_messages(self, snap: Snapshot) -> None:
        """The files of a round's recorded messages; a checkpoint names them once the round is complete."""
        self.folder.write_messages(snap.round, to_files(snap.ledger.kept))
        snap.ledger.kept.clear()  # they may be as large as all clients' models together

    def _write_counts(self) -> None:
        """Who holds what: for people, so with what else they read at the end."""
        table = RowBuffer(CLIENTS)
        for k, held in zip(self.ready.dealt.counted, self.ready.dealt.counts):
            table.add((k, c, int(rows)) for c, rows in enumerate(held))
        self.folder.write("clients.parquet", table.to_bytes())


def _notes(snap: Snapshot, report: RoundReport) -> list[str]:
    """What a person should see of a round beyond its accuracy: refused replies, and too few answers."""
    lines = [f"round {snap.round}: client {r.client} refused ({r.phase}): {r.reason}" for r in report.refused[:NOTED]]
    if more := len(report.refused) - NOTED:
        lines += [f"round {snap.round}: {more} more replies refused, see the ledger"] * (more > 0)
    if report.below_quorum:
        lines.append(
            f"round {snap.round}: {len(snap.answered)} of {len(snap.sampled)} sampled clients answered, below the "
            "quorum: the model stays as it was"
        )
    return lines
