"""One run of a paper's table or figure: finished, or planned where nothing has to be played."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.config.experiment import Experiment
from unskew.results.load import Loaded


@dataclass(frozen=True)
class Played:
    """A run and its place in the grid: the labels of its line and its column."""

    method: str
    setting: str
    seed: int
    run: Loaded
    data_dir: Path | None = None  # for a figure that needs the rows again


@dataclass(frozen=True)
class Planned:
    """A cell of a figure that shows what is fixed before the first round."""

    method: str
    setting: str
    seed: int
    experiment: Experiment
    data_dir: Path | None = None
