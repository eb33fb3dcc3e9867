"""The numbers of a comparison: a row per setting and method, with every seed's scores, read from the cells' folders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unskew.compare.grid import Cell, Grid
from unskew.compare.process_pool import folder_of
from unskew.compare.select_on_validation import choose_candidate, choose_round
from unskew.results.baseline import reference_of
from unskew.results.load_run import LoadedRun, load
from unskew.results.statistics import Difference, Scores, difference, mean_and_std

MEASURES = {
    "best": "best",
    "final": "final",
    "mean_last10": "mean of last 10",
    "selected": "test at validation's best round",
    "validation": "best validation",
}
PLAYED = ("best", "final", "mean_last10")
SELECTED = ("selected", "validation")
Find = Callable[[Cell], LoadedRun]  # a finished cell's run


@dataclass(frozen=True)
class ComparisonRow:
    """One method under one setting."""

    setting: str
    method: str  # its own name
    label: str  # what the grid calls it, with the candidate's values
    scores: Mapping[str, Scores]  # measure -> seed -> percent
    failed: Mapping[int, str]  # seed -> why
    notes: tuple[str, ...] = ()
    runs: tuple[LoadedRun, ...] = ()

    def spread(self, measure: str) -> tuple[float, float]:
        """Mean and standard deviation over the seeds that finished."""
        return mean_and_std([value for _, value in sorted(self.scores[measure].items())])

    @property
    def remarks(self) -> list[str]:
        """Notes, and why seeds failed."""
        return [*self.notes, *(f"seed {seed} failed: {why}" for seed, why in sorted(self.failed.items()))]


@dataclass(frozen=True)
class ComparisonTable:
    """Rows in the order of the grid."""

    name: str
    metric: str  # the measure that differences and the verdict look at
    measures: tuple[str, ...]
    seeds: tuple[int, ...]
    rows: tuple[ComparisonRow, ...]
    caption: str
    note: str = ""  # of the person who made the grid

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(row.setting for row in self.rows))

    def of(self, setting: str) -> list[ComparisonRow]:
        return [row for row in self.rows if row.setting == setting]

    def baseline(self, setting: str) -> ComparisonRow:
        """FedAvg if it is there, else the first method; of those with numbers, where there are any."""
        rows = [row for row in self.of(setting) if row.scores[self.metric]] or self.of(setting)
        return rows[reference_of([row.method for row in rows])]

    def gap(self, row: ComparisonRow) -> Difference | None:
        """The paired difference to the baseline, which has none to itself."""
        base = self.baseline(row.setting)
        both = row.scores[self.metric].keys() & base.scores[self.metric].keys()
        return difference(row.scores[self.metric], base.scores[self.metric]) if row is not base and both else None

    def leads(self, row: ComparisonRow, measure: str) -> bool:
        """Whether its mean is the best of its setting; with a failed seed it is a mean of something else."""
        whole = [other.spread(measure)[0] for other in self.of(row.setting) if not other.failed]
        return bool(whole) and not row.failed and row.spread(measure)[0] == max(whole)


def read(grid: Grid, out: Path, failed: Mapping[str, str]) -> ComparisonTable:
    """The table of the cells' folders under `out`; `failed` says why by the name of a cell that did not end well."""
    return lay_out(grid, lambda cell: load(folder_of(out, cell)), failed)


def lay_out(grid: Grid, find: Find, failed: Mapping[str, str]) -> ComparisonTable:
    """The table of the grid's cells, wherever their runs are found."""
    selects = grid.compare.select is not None
    make = _selected_row if selects else _played_row
    keys = dict.fromkeys((cell.setting, cell.method if selects else cell.label) for cell in grid.cells)
    by_key: dict[tuple[str, str], list[Cell]] = {key: [] for key in keys}
    for cell in grid.cells:
        by_key[cell.setting, cell.method if selects else cell.label].append(cell)
    rows = tuple(make(cells, find, failed) for cells in by_key.values())
    measures, metric = (SELECTED, "selected") if selects else (PLAYED, grid.compare.metric)
    return ComparisonTable(grid.name, metric, measures, grid.compare.seeds, rows, _caption(grid), grid.compare.note)


def _caption(grid: Grid) -> str:
    """What a reader of the numbers must know."""
    seeds = len(grid.compare.seeds)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else f"seed {grid.compare.seeds[0]} alone"
    if grid.compare.select is None:
        return f"Accuracy on the test set in percent, {over}."
    share = ", ".join(sorted({f"{100 * cell.experiment.data.validation:g} %" for cell in grid.cells}))
    return (
        f"Accuracy in percent, {over}. Candidates and rounds were chosen on {share} of the training rows, "
        "held out; of the test set only the accuracy at the chosen round is reported."
    )


def _played_row(cells: list[Cell], find: Find, failed: Mapping[str, str]) -> ComparisonRow:
    runs = {cell.seed: find(cell) for cell in cells if cell.name not in failed}
    scores = {m: {seed: float(getattr(run.summary, m)) for seed, run in runs.items()} for m in PLAYED}
    return _row(cells, scores, runs, failed, ())


def _selected_row(cells: list[Cell], find: Find, failed: Mapping[str, str]) -> ComparisonRow:
    """The candidate that validation chose, at the rounds that validation chose."""
    by_candidate: dict[str, list[Cell]] = {}
    for cell in cells:
        by_candidate.setdefault(cell.candidate, []).append(cell)
    runs = {
        name: {cell.seed: find(cell) for cell in of if cell.name not in failed} for name, of in by_candidate.items()
    }
    found = {name: {seed: choose_round(run.metrics) for seed, run in of.items()} for name, of in runs.items()}
    chosen = choose_candidate(found)
    choices = found[chosen]
    scores = {
        "selected": {seed: choice.test for seed, choice in choices.items()},
        "validation": {seed: choice.validation for seed, choice in choices.items()},
    }
    rounds = ", ".join(str(choice.round) for _, choice in sorted(choices.items()))
    notes = [f"chosen of {len(found)} candidates"] if len(found) > 1 else []
    notes += [f"rounds {rounds}"] if rounds else []
    return _row(by_candidate[chosen], scores, runs[chosen], failed, tuple(notes))


def _row(
    cells: list[Cell],
    scores: Mapping[str, Scores],
    runs: Mapping[int, LoadedRun],
    failed: Mapping[str, str],
    notes: Iterable[str],
) -> ComparisonRow:
    first = cells[0]
    why = {cell.seed: " ".join(failed[cell.name].split()) for cell in cells if cell.name in failed}
    refused = {seed: int((run.metrics["metric"] == "dropped").sum()) for seed, run in sorted(runs.items())}
    more = [f"seed {seed}: {n} {'reply was' if n == 1 else 'replies were'} refused" for seed, n in refused.items() if n]
    whole = tuple(run for _, run in sorted(runs.items()))
    return ComparisonRow(first.setting, first.experiment.label, first.label, scores, why, (*notes, *more), whole)
