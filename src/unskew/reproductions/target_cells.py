"""One cell of a paper's table or figure: a finished run, or a plan if nothing has to be run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.config.experiment import Experiment
from unskew.results.load_run import LoadedRun


@dataclass(frozen=True)
class FinishedCell:
    """A run and its labels in the grid: the method (row) and the setting (column)."""

    method: str
    setting: str
    seed: int
    run: LoadedRun
    data_dir: Path | None = None  # for a figure that reads the dataset again


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a figure that shows what is fixed before the first round."""

    method: str
    setting: str
    seed: int
    experiment: Experiment
    data_dir: Path | None = None
