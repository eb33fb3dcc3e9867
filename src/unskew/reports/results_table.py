"""The table of a setting: accuracies over seeds, speed-up, bytes, seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from unskew.reports.group_runs import MethodRuns, Setting
from unskew.reports.speedup import SpeedUp, speed_up
from unskew.results.baseline import is_baseline
from unskew.results.format_numbers import in_bytes, in_seconds, spread
from unskew.results.run_tables import test_accuracy
from unskew.results.statistics import mean_and_std

TITLES = {
    "best": "best, %",
    "final": "final, %",
    "mean_last10": "mean of last 10, %",
    "clients_mean": "mean over clients, %",
    "worst_tenth": "worst tenth of clients, %",
    "selected": "test at best validation round, %",
    "validation": "best validation, %",
}


@dataclass(frozen=True)
class TableCell:
    """Text of a cell, whether it is the best of its column, and whether it has a footnote."""

    text: str
    best: bool = False
    flag: bool = False


@dataclass(frozen=True)
class ResultsRow:
    label: str
    seeds: int
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class ResultsTable:
    columns: tuple[str, ...]
    rows: tuple[ResultsRow, ...]
    flagged: bool  # whether a method never reached the target of its speed-up with some seed


def results_table(setting: Setting) -> ResultsTable:
    """A row per method, with the best mean of a column marked."""
    cells: dict[str, list[TableCell]] = {}
    for measure in setting.measures:
        cells[TITLES[measure]] = _score_cells(setting.entries, measure)
        if measure == "best":
            rounds = [mean_and_std(_values(entry, "best_round")) for entry in setting.entries]
            cells["best round"] = [TableCell(spread(mean, std)) for mean, std in rounds]
    if any(entry.paper_value for entry in setting.entries):
        cells["paper, %"] = [TableCell(entry.paper_value or "–") for entry in setting.entries]
    # Speed-up is defined relative to FedAvg, on test curves and for runs of equal length.
    stopped = any(run.summary.stopped for entry in setting.entries for run in entry.runs)
    if (
        is_baseline(setting.baseline.method)
        and len(setting.entries) > 1
        and not setting.rounds_selected
        and not stopped
    ):
        cells["speed-up"] = [_speed_up_cell(factors) for factors in speed_ups(setting)]
    cells |= {
        "up": [TableCell(in_bytes(fmean(_values(entry, "bytes_up")))) for entry in setting.entries],
        "down": [TableCell(in_bytes(fmean(_values(entry, "bytes_down")))) for entry in setting.entries],
        "time": [TableCell(in_seconds(fmean(_values(entry, "seconds")))) for entry in setting.entries],
    }
    rows = [
        ResultsRow(e.label, len(e.runs), tuple(c[i] for c in cells.values())) for i, e in enumerate(setting.entries)
    ]
    return ResultsTable(tuple(cells), tuple(rows), any(cell.flag for row in rows for cell in row.cells))


def speed_ups(setting: Setting) -> list[list[SpeedUp]]:
    """Per method, one speed-up for each seed that the baseline also has."""
    curves = {run.config.seed: test_accuracy(run.metrics) for run in setting.baseline.runs}
    by_method = []
    for entry in setting.entries:
        runs = [run for run in entry.runs if run.config.seed in curves]
        if entry is setting.baseline:  # 1 by definition, whatever its best round
            by_method.append([SpeedUp(1.0, True) for _ in runs])
            continue
        by_method.append([speed_up(test_accuracy(r.metrics), curves[r.config.seed]) for r in runs])
    return by_method


def _values(entry: MethodRuns, name: str) -> list[float]:
    return [float(getattr(run.summary, name)) for run in entry.runs]


def _score_cells(entries: Sequence[MethodRuns], measure: str) -> list[TableCell]:
    means = [mean_and_std(list(entry.scores[measure].values())) for entry in entries]
    known = [mean for entry, (mean, _) in zip(entries, means) if entry.complete and not math.isnan(mean)]
    top = max(known) if len(known) > 1 else math.inf
    return [
        TableCell(spread(mean, std), best=entry.complete and mean == top) for entry, (mean, std) in zip(entries, means)
    ]


def _speed_up_cell(speed_ups: list[SpeedUp]) -> TableCell:
    factors, missed = [each.factor for each in speed_ups if each.reached], any(not each.reached for each in speed_ups)
    if not factors:
        return TableCell("–", flag=missed)
    mean, std = mean_and_std(factors)
    if len(set(factors)) == 1:
        std = math.nan  # print no ± 0.00
    return TableCell(f"{spread(mean, std, 2)}×", flag=missed)
