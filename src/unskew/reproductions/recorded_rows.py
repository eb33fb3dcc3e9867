"""Read the rows that `--record` wrote for a paper back as runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.comparisons.grid import Cell
from unskew.reproductions.record_runs import KEY, SUPERSEDED
from unskew.results.load_run import LoadedRun
from unskew.results.run_tables import METRICS, Summary

if TYPE_CHECKING:
    import pandas as pd

FILES = ("accuracy.csv", "curves.csv")
ENVIRONMENT = ("engine", "precision", "device", "versions", "commit")
Key = tuple[str, ...]  # in the order of KEY


@dataclass(frozen=True, kw_only=True)
class RecordedRun(LoadedRun):
    """A run read from its rows: the summary, accuracy and loss by round, and the size of the test set."""

    curve: pd.DataFrame
    test_counts: tuple[int, int]

    @property
    def test_set(self) -> tuple[int, int]:
        return self.test_counts

    def _table(self, name: str) -> pd.DataFrame:
        if name != "metrics":
            raise UserError(f"{self.folder}: expected {name}, found accuracy and loss alone; run the experiment")
        return self.curve


@dataclass(frozen=True)
class RecordedRuns:
    """One line per run and its curve, as text."""

    folder: Path
    lines: dict[Key, dict[str, str]]
    curves: dict[Key, pd.DataFrame]

    def values_of(self, column: str) -> list[str]:
        """The distinct values of a column, sorted; numbers by size."""
        values = {line[column] for line in self.lines.values()} - {""}
        return sorted(values, key=lambda text: (len(text), text) if text.isdigit() else (0, text))

    def run(self, key: Key, cell: Cell) -> RecordedRun:
        """The recorded run with this key, as the run of a cell."""
        line = self.lines[key]
        try:
            best, final, late, seconds = (float(line[n]) for n in ("best", "final", "mean_last10", "seconds"))
            at, up, down = (int(line[name]) for name in ("best_round", "bytes_up", "bytes_down"))
            test = int(line.get("test_rows") or 0), int(line.get("largest_class") or 0)  # empty in old rows
            curve = _metrics(self.curves[key], cell)
        except (KeyError, ValueError) as error:
            raise UserError(f"{self.folder}: cannot read the row of {', '.join(key)}: {error}") from error
        summary = Summary(cell.name, line["method"], best, at, final, late, up, down, seconds)
        environment = {name: line[name] for name in ENVIRONMENT} | {SUPERSEDED: line.get(SUPERSEDED, "")}
        return RecordedRun(self.folder, cell.experiment, summary, {}, environment, curve=curve, test_counts=test)


def load_recorded(folder: Path, paper: str, command: str) -> RecordedRuns:
    """The recorded runs of a paper under `folder`, without lines that have no curve.

    command: the command line that records them, for the error message if there are none.
    """
    import pandas as pd

    path = folder / paper
    for name in FILES:
        if not (path / name).is_file():
            raise UserError(
                f"--recorded: expected {name} in {path}, found none; type --recorded shipped for the rows that come "
                f"with unskew; to record it, run: {command}"
            )
    lines, curves = (pd.read_csv(path / name, dtype=str, keep_default_na=False) for name in FILES)
    for name, frame in zip(FILES, (lines, curves)):
        if absent := [column for column in KEY if column not in frame]:
            raise UserError(f"{path / name}: expected the columns {', '.join(KEY)}, found no {', '.join(absent)}")
    curve_by_run = {tuple(map(str, key)): rows for key, rows in curves.groupby(KEY, sort=False)}
    records = [dict(zip(lines.columns, line)) for line in lines.to_numpy()]
    line_by_run = {tuple(line[name] for name in KEY): line for line in records}
    return RecordedRuns(path, {key: line for key, line in line_by_run.items() if key in curve_by_run}, curve_by_run)


def _metrics(curve: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """A curve with the columns of a run's metrics table."""
    import pandas as pd

    rounds = curve["round"].astype(int)
    about = {"run": cell.name, "method": cell.experiment.label, "seed": cell.seed, "who": "server", "split": "test"}
    tables = [
        pd.DataFrame(about | {"round": rounds, "metric": metric, "value": pd.to_numeric(curve[metric])})
        for metric in ("accuracy", "loss")
    ]
    return pd.concat(tables, ignore_index=True)[list(METRICS)]
