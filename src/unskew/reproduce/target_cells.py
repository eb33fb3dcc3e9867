"""One run of a paper's table or figure: finished, or planned where nothing has to be played."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.config.experiment import Experiment
from unskew.results.load_run import LoadedRun


@dataclass(frozen=True)
class FinishedCell:
    """A run and its place in the grid: the labels of its line and its column."""

    method: str
    setting: str
    seed: int
    run: LoadedRun
    data_dir: Path | None = None  # for a figure that needs the rows again


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a figure that shows what is fixed before the first round."""

    method: str
    setting: str
    seed: int
    experiment: Experiment
    data_dir: Path | None = None
