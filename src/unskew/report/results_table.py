"""The table of a setting: accuracies over seeds, speed-up, bytes, seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from unskew.report.group_runs import MethodRuns, Setting
from unskew.report.speedup import SpeedUp, speed_up
from unskew.results.baseline import is_reference
from unskew.results.format_numbers import in_bytes, in_seconds, spread
from unskew.results.run_tables import test_accuracy
from unskew.results.statistics import mean_and_std

TITLES = {
    "best": "best, %",
    "final": "final, %",
    "mean_last10": "last ten, %",
    "selected": "test at validation's best round, %",
    "validation": "best validation, %",
}


@dataclass(frozen=True)
class TableCell:
    """What is written, and whether it is the best of its column."""

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
    flagged: bool  # whether some speed-up is 1 because the target was never reached


def results(setting: Setting) -> ResultsTable:
    """A row per method; the best mean of a column is marked."""
    cells: dict[str, list[TableCell]] = {}
    for measure in setting.measures:
        cells[TITLES[measure]] = _marked(setting.entries, measure)
        if measure == "best":
            rounds = [mean_and_std(_values(entry, "best_round")) for entry in setting.entries]
            cells["best round"] = [TableCell(spread(mean, std)) for mean, std in rounds]
    if any(entry.printed for entry in setting.entries):
        cells["paper, %"] = [TableCell(entry.printed or "–") for entry in setting.entries]
    # A speed-up is defined against FedAvg, by the test curves, and over runs of the same length.
    stopped = any(run.summary.stopped for entry in setting.entries for run in entry.runs)
    if is_reference(setting.reference.method) and len(setting.entries) > 1 and not setting.selected and not stopped:
        cells["speed-up"] = [_factor(found) for found in speed_ups(setting)]
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
    """By method, one per seed that the reference also has."""
    curves = {run.config.seed: test_accuracy(run.metrics) for run in setting.reference.runs}
    found = []
    for entry in setting.entries:
        runs = [run for run in entry.runs if run.config.seed in curves]
        if entry is setting.reference:  # 1 by definition, wherever in the run its best lies
            found.append([SpeedUp(1.0, True) for _ in runs])
            continue
        found.append([speed_up(test_accuracy(r.metrics), curves[r.config.seed], r.config.rounds) for r in runs])
    return found


def _values(entry: MethodRuns, name: str) -> list[float]:
    return [float(getattr(run.summary, name)) for run in entry.runs]


def _marked(entries: Sequence[MethodRuns], measure: str) -> list[TableCell]:
    means = [mean_and_std(list(entry.scores[measure].values())) for entry in entries]
    known = [mean for entry, (mean, _) in zip(entries, means) if entry.whole and not math.isnan(mean)]
    top = max(known) if len(known) > 1 else math.inf
    return [
        TableCell(spread(mean, std), best=entry.whole and mean == top) for entry, (mean, std) in zip(entries, means)
    ]


def _factor(found: list[SpeedUp]) -> TableCell:
    if not found:
        return TableCell("–")
    mean, std = mean_and_std([one.factor for one in found])
    if len({one.factor for one in found}) == 1:
        std = math.nan  # nothing to spread
    missed = any(not one.reached for one in found)
    return TableCell(f"{spread(mean, std, 2)}×", flag=missed)
