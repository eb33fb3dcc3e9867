"""The numbers of a comparison: a row per setting and method, with the scores of every seed, read from its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pandas as pd

from unskew.comparisons.cells import folder_of
from unskew.comparisons.grid import Cell, Grid
from unskew.comparisons.select_on_validation import choose_candidate, choose_round
from unskew.results.baseline import baseline_index
from unskew.results.client_accuracy import client_accuracy, final_client_accuracy, worst_tenth
from unskew.results.learning import majority_sentence
from unskew.results.load_run import LoadedRun, load
from unskew.results.statistics import Difference, Scores, difference, mean_and_std

MEASURES = {
    "best": "best",
    "final": "final",
    "mean_last10": "mean of last 10",
    "clients_mean": "mean over clients",
    "worst_tenth": "worst tenth of clients",
    "selected": "test at best validation round",
    "validation": "best validation",
}
RUN_MEASURES = ("best", "final", "mean_last10")
SELECTION_MEASURES = ("selected", "validation")
CLIENT_MEASURES = ("clients_mean", "worst_tenth")  # with `evaluate.clients`
LoadCell = Callable[[Cell], LoadedRun]  # loads the run of a finished cell


@dataclass(frozen=True)
class ComparisonRow:
    """One method under one setting."""

    setting: str
    method: str  # name of the method itself
    label: str  # its label in the grid, with the candidate's values
    scores: Mapping[str, Scores]  # measure -> seed -> percent
    failed: Mapping[int, str]  # seed -> reason
    notes: tuple[str, ...] = ()
    runs: tuple[LoadedRun, ...] = ()

    def spread(self, measure: str) -> tuple[float, float]:
        """Mean and standard deviation over the seeds that finished."""
        return mean_and_std([value for _, value in sorted(self.scores[measure].items())])

    @property
    def remarks(self) -> list[str]:
        """Notes, and the reasons why seeds failed."""
        return [*self.notes, *(f"seed {seed} failed: {why}" for seed, why in sorted(self.failed.items()))]


@dataclass(frozen=True)
class ComparisonTable:
    """Rows in the order of the grid."""

    name: str
    metric: str  # the measure that differences and the finding are based on
    measures: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[ComparisonRow, ...]
    caption: str
    note: str = ""  # from the recipe's section `compare`

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(row.setting for row in self.rows))

    def of(self, setting: str) -> list[ComparisonRow]:
        return [row for row in self.rows if row.setting == setting]

    def baseline(self, setting: str) -> ComparisonRow:
        """FedAvg if present, else the first method; only methods with scores count unless none has any."""
        rows = [row for row in self.of(setting) if row.scores[self.metric]] or self.of(setting)
        return rows[baseline_index([row.method for row in rows])]

    def gap(self, row: ComparisonRow) -> Difference | None:
        """The paired difference from the baseline; None for the baseline itself and without a common seed."""
        base = self.baseline(row.setting)
        common = row.scores[self.metric].keys() & base.scores[self.metric].keys()
        return difference(row.scores[self.metric], base.scores[self.metric]) if row is not base and common else None

    def leads(self, row: ComparisonRow, measure: str) -> bool:
        """Whether the row has the best mean of its setting; rows with failed seeds do not count."""
        means = [other.spread(measure)[0] for other in self.of(row.setting) if not other.failed]
        return bool(means) and not row.failed and row.spread(measure)[0] == max(means)


def read_table(grid: Grid, out: Path, failed: Mapping[str, str]) -> ComparisonTable:
    """The table of the cells' folders under `out`. failed: name of a failed cell -> reason."""
    return build_table(grid, lambda cell: load(folder_of(out, cell)), failed)


def build_table(grid: Grid, load_cell: LoadCell, failed: Mapping[str, str]) -> ComparisonTable:
    """The table of the grid's cells, with any way to load their runs."""
    selects = grid.compare.select is not None
    make_row = _selected_row if selects else _plain_row
    keys = dict.fromkeys((cell.setting, cell.method if selects else cell.label) for cell in grid.cells)
    by_key: dict[tuple[str, str], list[Cell]] = {key: [] for key in keys}
    for cell in grid.cells:
        by_key[cell.setting, cell.method if selects else cell.label].append(cell)
    rows = tuple(make_row(cells, load_cell, failed) for cells in by_key.values())
    measures, metric = (SELECTION_MEASURES, "selected") if selects else (RUN_MEASURES, grid.compare.metric)
    if all(row.scores.keys() >= set(CLIENT_MEASURES) for row in rows):
        measures = (*measures, *CLIENT_MEASURES)
    majority = majority_sentence(run for row in rows for run in row.runs)
    caption = " ".join(text for text in (_caption(grid), majority) if text)
    return ComparisonTable(grid.name, metric, measures, grid.compare.seeds, rows, caption, grid.compare.note)


def _caption(grid: Grid) -> str:
    seeds = len(grid.compare.seeds)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else f"seed {grid.compare.seeds[0]} only"
    if grid.compare.select is None:
        return f"Test accuracy in percent, {over}."
    share = ", ".join(sorted({f"{100 * cell.experiment.data.validation:g} %" for cell in grid.cells}))
    return (
        f"Accuracy in percent, {over}. Candidates and rounds were selected on held-out rows ({share} of the training "
        "set); test accuracy is reported only at the selected round."
    )


def _plain_row(cells: list[Cell], load_cell: LoadCell, failed: Mapping[str, str]) -> ComparisonRow:
    runs = {cell.seed: load_cell(cell) for cell in cells if cell.name not in failed}
    scores = {m: {seed: float(getattr(run.summary, m)) for seed, run in runs.items()} for m in RUN_MEASURES}
    scores |= _client_scores(cells, {seed: final_client_accuracy(run.metrics) for seed, run in runs.items()})
    return _row(cells, scores, runs, failed, ())


def _selected_row(cells: list[Cell], load_cell: LoadCell, failed: Mapping[str, str]) -> ComparisonRow:
    """The candidate and the rounds with the best validation accuracy."""
    by_candidate: dict[str, list[Cell]] = {}
    for cell in cells:
        by_candidate.setdefault(cell.candidate, []).append(cell)
    runs = {
        name: {cell.seed: load_cell(cell) for cell in candidate_cells if cell.name not in failed}
        for name, candidate_cells in by_candidate.items()
    }
    selected = {
        name: {seed: choose_round(run.metrics) for seed, run in by_seed.items()} for name, by_seed in runs.items()
    }
    chosen = choose_candidate(selected)
    choices = selected[chosen]
    scores = {
        "selected": {seed: choice.test for seed, choice in choices.items()},
        "validation": {seed: choice.validation for seed, choice in choices.items()},
    }
    by_client = {seed: client_accuracy(run.metrics) for seed, run in runs[chosen].items()}
    at_round = {seed: rows[rows["round"] == choices[seed].round] for seed, rows in by_client.items()}
    scores |= _client_scores(by_candidate[chosen], at_round)
    rounds = ", ".join(str(choice.round) for _, choice in sorted(choices.items()))
    notes = [f"best of {len(selected)} candidates"] if len(selected) > 1 else []
    notes += [f"rounds {rounds}"] if rounds else []
    return _row(by_candidate[chosen], scores, runs[chosen], failed, tuple(notes))


def _client_scores(cells: list[Cell], accuracies: Mapping[int, pd.DataFrame]) -> dict[str, dict[int, float]]:
    """Scores over the clients if all cells have `evaluate.clients`. accuracies: seed -> rows with a value by client."""
    if not all(cell.experiment.evaluate.clients for cell in cells):
        return {}
    values = {seed: rows["value"].tolist() for seed, rows in accuracies.items()}
    means = {seed: fmean(each) if each else math.nan for seed, each in values.items()}
    return {"clients_mean": means, "worst_tenth": {seed: worst_tenth(each) for seed, each in values.items()}}


def _row(
    cells: list[Cell],
    scores: Mapping[str, Scores],
    runs: Mapping[int, LoadedRun],
    failed: Mapping[str, str],
    notes: Iterable[str],
) -> ComparisonRow:
    first = cells[0]
    reasons = {cell.seed: " ".join(failed[cell.name].split()) for cell in cells if cell.name in failed}
    refused = {seed: int((run.metrics["metric"] == "dropped").sum()) for seed, run in sorted(runs.items())}
    more = [f"seed {seed}: {n} {'reply was' if n == 1 else 'replies were'} refused" for seed, n in refused.items() if n]
    by_seed = tuple(run for _, run in sorted(runs.items()))
    return ComparisonRow(first.setting, first.experiment.label, first.label, scores, reasons, (*notes, *more), by_seed)
