"""The folder of a cell, and the callbacks that show the progress of a grid's cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from unskew.comparisons.folder_lock import CELLS
from unskew.comparisons.grid import Cell


class GridProgress(Protocol):
    """Callbacks for the progress of the cells."""

    def begin(self, cells: Sequence[Cell], finished: set[str], jobs: int) -> None: ...

    def update(self, cell: Cell, round: int, accuracy: float | None, best: float | None) -> None: ...

    def cell_ended(self, cell: Cell, failure: str | None) -> None: ...

    def end(self) -> None: ...


def folder_of(out: Path, cell: Cell) -> Path:
    """The run folder of a cell."""
    return out / CELLS / cell.name
