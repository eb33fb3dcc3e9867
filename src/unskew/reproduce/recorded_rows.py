"""The rows that `--record` kept of a paper, read back as runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.compare.grid import Cell
from unskew.reproduce.record_runs import KEY
from unskew.results.load_run import LoadedRun
from unskew.results.run_tables import METRICS, Summary

if TYPE_CHECKING:
    import pandas as pd

FILES = ("accuracy.csv", "curves.csv")
PLAYED_ON = ("engine", "precision", "device", "versions", "commit")
Key = tuple[str, ...]  # in the order of KEY


@dataclass(frozen=True, kw_only=True)
class RecordedRun(LoadedRun):
    """A run of which rows were kept: its summary, and accuracy and loss by round."""

    curve: pd.DataFrame

    def _table(self, name: str) -> pd.DataFrame:
        if name != "metrics":
            raise UserError(f"{self.folder}: expected {name}, found accuracy and loss by round alone; play the run")
        return self.curve


@dataclass(frozen=True)
class RecordedRuns:
    """A line per run and its curve, as text."""

    folder: Path
    lines: dict[Key, dict[str, str]]
    curves: dict[Key, pd.DataFrame]

    def all_of(self, column: str) -> list[str]:
        """The different values of a column, numbers by size."""
        found = {line[column] for line in self.lines.values()} - {""}
        return sorted(found, key=lambda text: (len(text), text) if text.isdigit() else (0, text))

    def run(self, key: Key, cell: Cell) -> RecordedRun:
        """The run under a key, as the run of a cell."""
        line = self.lines[key]
        try:
            best, final, late, seconds = (float(line[n]) for n in ("best", "final", "mean_last10", "seconds"))
            at, up, down = (int(line[name]) for name in ("best_round", "bytes_up", "bytes_down"))
            curve = _metrics(self.curves[key], cell)
        except (KeyError, ValueError) as error:
            raise UserError(f"{self.folder}: the row of {', '.join(key)} is not readable: {error}") from error
        summary = Summary(cell.name, line["method"], best, at, final, late, up, down, seconds)
        return RecordedRun(self.folder, cell.experiment, summary, {}, {n: line[n] for n in PLAYED_ON}, curve=curve)


def shelf(folder: Path, paper: str, how: str) -> RecordedRuns:
    """What is recorded of a paper under `folder`, or a UserError with how to play it; no line without a curve."""
    import pandas as pd

    place = folder / paper
    for name in FILES:
        if not (place / name).is_file():
            raise UserError(f"--recorded: expected {name} in {place}, found none; play it: {how}")
    lines, curves = (pd.read_csv(place / name, dtype=str, keep_default_na=False) for name in FILES)
    for name, frame in zip(FILES, (lines, curves)):
        if lacks := [column for column in KEY if column not in frame]:
            raise UserError(f"{place / name}: expected the columns {', '.join(KEY)}, found no {', '.join(lacks)}")
    by_key = {tuple(map(str, key)): rows for key, rows in curves.groupby(KEY, sort=False)}
    found = [dict(zip(lines.columns, line)) for line in lines.to_numpy()]
    records = {tuple(line[name] for name in KEY): line for line in found}
    return RecordedRuns(place, {key: line for key, line in records.items() if key in by_key}, by_key)


def _metrics(curve: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """A curve in the columns of a run's metrics."""
    import pandas as pd

    rounds = curve["round"].astype(int)
    about = {"run": cell.name, "method": cell.experiment.label, "seed": cell.seed, "who": "server", "split": "test"}
    tables = [
        pd.DataFrame(about | {"round": rounds, "metric": metric, "value": pd.to_numeric(curve[metric])})
        for metric in ("accuracy", "loss")
    ]
    return pd.concat(tables, ignore_index=True)[list(METRICS)]
