"""The loop over the rounds of one run: train, evaluate, save, notify callbacks, and write the run's folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unskew.base.errors import UserError
from unskew.base.signals import uninterrupted
from unskew.base.tree import flatten
from unskew.config.user_code import contents_of
from unskew.results.metric_rows import MetricRow, MetricRows, accuracy
from unskew.results.recorded_messages import to_files
from unskew.results.run_folder import RunFolder
from unskew.results.run_tables import CLIENTS, RowBuffer, Summary, best_accuracy, summarise
from unskew.runner import fingerprints
from unskew.runner.callbacks import Callback, ProgressDisplay, Round, notify
from unskew.runner.evaluate_round import Evaluation, RoundScores
from unskew.runner.more_rounds import adopt_rows
from unskew.runner.prepare_run import PreparedRun
from unskew.runner.provenance import describe
from unskew.runner.resolve_absence import intervals_of
from unskew.runner.trackers import open_trackers
from unskew.server.federation import PhaseCallback
from unskew.server.loss_check import NotFiniteError
from unskew.server.snapshot import RoundReport, Snapshot

if TYPE_CHECKING:
    import pandas as pd


MAX_REFUSALS_SHOWN = 3  # per round


@dataclass(frozen=True)
class Run:
    """A finished run."""

    folder: Path
    summary: Summary
    metrics: pd.DataFrame
    ledger: pd.DataFrame

    def __repr__(self) -> str:
        return f"<Run {self.summary.describe()}>"

    def _repr_html_(self) -> str:
        return self.summary._repr_html_()


class RoundLoop:
    """Rounds, evaluation, rows and checkpoints of one run."""

    def __init__(
        self,
        prepared: PreparedRun,
        folder: RunFolder,
        identity: str,
        display: ProgressDisplay,
        callbacks: list[Callback],
        phase: PhaseCallback | None,
    ) -> None:
        self.prepared, self.folder, self.display, self.callbacks = prepared, folder, display, callbacks
        self.rows = MetricRows(identity, prepared.experiment.label, prepared.experiment.seed)
        should_record = prepared.experiment.record.should_record
        self.federation = replace(
            prepared.federation, should_record=should_record, on_phase=phase or (lambda name, round: None)
        )
        self.experiment, self.store, self.stop = prepared.experiment, prepared.federation.store, prepared.stop
        self._saved_at, self._saved_round, self._best = time.monotonic(), -1, 0.0
        self._environment = describe(prepared.federation.engine)  # now, because the checkout may change during the run
        self._last: Snapshot | None = None  # the last complete round, consistent with rows and client state

    def run(self, manifest: dict[str, Any] | None) -> Run:
        """Run all rounds from the checkpoint on. An interruption is re-raised once the last complete round is saved."""
        snap = self._first_snapshot(manifest)
        self.display.begin(self.prepared.header, snap.round, self.experiment.rounds)
        try:
            with open_trackers(self.experiment, self.folder.path, self.rows.run, snap.round) as trackers:
                self.callbacks += trackers
                while snap.round < self.experiment.rounds and not self.stop.reason:
                    snap = self._round(snap)
            return self._finish(snap)
        except BaseException as error:
            self.store.rollback()
            if self.folder.has_run and self._last is not None:
                self._save(self._last)
                if isinstance(error, NotFiniteError):
                    raise self._divergence_error(error, self._last.round) from error
            raise
        finally:
            self.display.end()

    def _divergence_error(self, error: NotFiniteError, last: int) -> UserError:
        lr, path = self.experiment.local.lr, f"{self.folder.path}/checkpoint"
        return UserError(
            f"{error}; try a lower local.lr (now {lr:g}) or a limit such as local.clip=1, with another --out; "
            f"round {last}, the last without errors, is saved in {path}"
        )

    def _first_snapshot(self, manifest: dict[str, Any] | None) -> Snapshot:
        """The checkpoint to continue from, or the start of a new run with the untrained model evaluated."""
        federation, engine = self.federation, self.federation.engine
        if manifest is not None:
            self._check_fingerprints(manifest["world"])
            federation.task.readers_of_rounds.update(manifest.get("readers_of_rounds", ()))
            snap = self.folder.load(manifest, self.store, engine.device)
            if "last_round" not in manifest:  # a checkpoint of the previous version
                self._check_parts(snap)
            federation.model.initial.update(self.folder.read_initial())
            self._last, self._saved_round = snap, snap.round
            self._continue_longer(snap, manifest)
            metrics = self.folder.tables["metrics"].frame()
            self._best = best_accuracy(metrics)
            self.stop.add(map(MetricRow._make, metrics[metrics["who"] == "server"].itertuples(index=False)))
            return snap
        snap = self._last = federation.start()
        self.folder.write_initial(federation.model.initial)
        self.folder.tables["metrics"].add(self._score_rows(0, self._scores(snap)))
        for used in self.experiment.imports:
            if contents := contents_of(used):
                self.folder.write(f"imports/{used.copy_name}", contents)
        self.folder.write_config(self._resolved(), self._environment, self._about())
        return snap

    def _continue_longer(self, snap: Snapshot, manifest: dict[str, Any]) -> None:
        """If the run has more rounds than it was started with: save it as unfinished, then its new settings."""
        if manifest["finished"]:
            self._checkpoint(snap)
        if self.folder.read_config()["rounds"] != self.experiment.rounds:
            self.folder.write_config(self._resolved(), self._environment, self._about())
        metrics = self.folder.tables["metrics"]
        if (metrics.frame()["run"] != self.rows.run).any():
            rows = adopt_rows(metrics.frame(), self.rows.run, self.experiment)
            self.folder.tables["metrics"] = RowBuffer(metrics.columns, rows)

    def _resolved(self) -> dict[str, Any]:
        """All settings, with the intervals of absences that the split and the number of rounds decide."""
        settings = self.experiment.resolved()
        for entry, absences in zip(settings["absence"], self.prepared.split.absences):
            if not isinstance(entry.get("clients"), list):  # a list of clients and rounds says it all
                entry["intervals"] = intervals_of(absences)
        return settings

    def _about(self) -> dict[str, Any]:
        """Facts about the run that are not in its settings."""
        dataset = self.prepared.dataset
        scale = {"mean": dataset.mean, "std": dataset.std}
        test_rows = torch.bincount(dataset.test.y, minlength=dataset.num_classes).tolist()
        facts = {"header": self.prepared.header, "classes": list(dataset.classes), "test_rows": test_rows}
        return facts | {"shape": list(dataset.shape)} | scale

    def _check_fingerprints(self, before: dict[str, str]) -> None:
        """Refuse to resume with other data, another partition or another model."""
        changed = fingerprints.changed(before, self.prepared.fingerprints)
        if changed:
            raise UserError(
                f"{self.folder.path}: expected the {' and '.join(changed)} this run was started with, found "
                "different contents; resume with the same or choose another --out"
            )

    def _check_parts(self, snap: Snapshot) -> None:
        """Refuse a checkpoint whose parts' states have other names, as of another version."""
        for part, state in self.federation.start().parts.items():
            if missing := sorted(flatten(state).keys() - flatten(snap.parts.get(part, {})).keys()):
                raise UserError(
                    f"{self.folder.path}: expected {missing[0]} in the state of part {part}, found none: the "
                    "checkpoint is from another version of unskew; finish this run with that version, or start again "
                    "with another --out"
                )

    def _round(self, before: Snapshot) -> Snapshot:
        """Run one round and add its rows; once complete, it is the round that an interruption would save."""
        start = time.monotonic()
        snap, report = self.federation.run_round(before)
        trained = time.monotonic()
        due = snap.round % self.experiment.evaluate.every == 0 or snap.round == self.experiment.rounds
        scores = self._scores(snap) if due else RoundScores()
        self.federation.on_phase("evaluate", snap.round)
        self._write_messages(snap)
        times = [("train", trained - start), ("evaluate", time.monotonic() - trained)]
        rows = self._commit(snap, report, scores, times)
        if time.monotonic() - self._saved_at >= self.experiment.checkpoint.seconds:
            self._save(snap)
        current = accuracy(scores.splits["test"]) if due else None
        self._best = max(self._best, current or 0.0)
        for line in _notes(snap, report):
            self.display.note(line)
        self.display.round(snap.round, current, self._best)
        notify(self.callbacks, Round(snap.round, rows, current, self._best))
        self.federation.on_phase("checkpoint", snap.round)
        return snap

    def _commit(
        self, snap: Snapshot, report: RoundReport, scores: RoundScores, times: list[tuple[str, float]]
    ) -> tuple[MetricRow, ...]:
        """Add rows, client state and snapshot of a round together, so that an interruption sees all of them or none."""
        rows = (*self._score_rows(snap.round, scores), *self.rows.report_rows(snap.round, report))
        with uninterrupted():
            self.folder.tables["metrics"].add(rows)
            self.folder.tables["ledger"].add(snap.ledger.entries)
            self.folder.tables["times"].add((snap.round, activity, seconds) for activity, seconds in times)
            self.store.commit()
            self._last = snap
        self.stop.add(rows)
        return rows

    def _finish(self, snap: Snapshot) -> Run:
        """Run the exchanges at the end and write the result files. If interrupted, a resume repeats all of this."""
        self._save(snap)
        final, report = self.federation.run_final_exchanges(snap)
        for line in _notes(final, report):
            self.display.note(line)
        self._write_messages(final)
        rows = list(self.rows.report_rows(snap.round, report))
        if final.ledger.entries:  # an exchange at the end may have changed the model
            rows += self._score_rows(snap.round, self._scores(final), "end of run ")
        self._last = None
        self.store.commit()
        self.folder.tables["ledger"].add(final.ledger.entries)
        self.folder.tables["metrics"].add(rows)
        times = self.folder.tables["times"].frame()
        summary = summarise(
            str(self.folder.path),
            self.experiment.label,
            self.folder.tables["metrics"].frame(),
            final.ledger.bytes_up,
            final.ledger.bytes_down,
            float(times["seconds"].sum()),
        )
        summary = replace(summary, last_round=snap.round, stopped=self.stop.reason)
        padding = {"padding_share": self.federation.engine.padding_share}
        self.folder.write_environment(self._environment | padding)
        self._write_counts()
        self.folder.finish({name: t.cpu() for name, t in final.model.items()})
        self._checkpoint(final, finished=vars(summary))
        return Run(
            self.folder.path, summary, self.folder.tables["metrics"].frame(), self.folder.tables["ledger"].frame()
        )

    def _checkpoint(self, snap: Snapshot, finished: dict[str, Any] | None = None) -> None:
        readers = sorted(self.federation.task.readers_of_rounds)
        self.folder.save(snap, self.store, self.prepared.fingerprints, finished, readers)

    def _save(self, snap: Snapshot) -> None:
        if snap.round != self._saved_round:
            self._checkpoint(snap)
            self._saved_round, self._saved_at = snap.round, time.monotonic()

    def _scores(self, snap: Snapshot) -> RoundScores:
        return Evaluation(self.federation, self.prepared.scored).scores(snap)

    def _score_rows(self, round: int, scores: RoundScores, prefix: str = "") -> list[MetricRow]:
        rows = self.rows
        return [*rows.score_rows(round, scores.splits, prefix), *rows.client_rows(round, scores.clients, prefix)]

    def _write_messages(self, snap: Snapshot) -> None:
        """Write a round's recorded messages; a checkpoint names the files once the round is complete."""
        self.folder.write_messages(snap.round, to_files(snap.ledger.recorded))
        snap.ledger.recorded.clear()  # they may be as large as all clients' models together

    def _write_counts(self) -> None:
        """Write the class counts of the clients."""
        table = RowBuffer(CLIENTS)
        for k, held in zip(self.prepared.split.counted, self.prepared.split.counts):
            table.add((k, c, int(rows)) for c, rows in enumerate(held))
        self.folder.write("clients.parquet", table.to_bytes())


def _notes(snap: Snapshot, report: RoundReport) -> list[str]:
    """Notes for the terminal about a round: refused replies, and too few answers."""
    lines = [
        f"round {snap.round}: client {r.client} refused ({r.phase}): {r.reason}"
        for r in report.refused[:MAX_REFUSALS_SHOWN]
    ]
    if more := len(report.refused) - MAX_REFUSALS_SHOWN:
        lines += [f"round {snap.round}: {more} more replies refused, see the ledger"] * (more > 0)
    if report.below_quorum:
        lines.append(
            f"round {snap.round}: {len(snap.answered)} of {len(snap.sampled)} sampled clients answered, below the "
            "quorum: the model stays as it was"
        )
    return lines
