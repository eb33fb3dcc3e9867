"""Runs cells in this process, one after another: for data, models and methods that worker processes cannot import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.comparisons.cells import GridProgress, folder_of
from unskew.comparisons.grid import Cell
from unskew.results.run_folder import read_manifest

if TYPE_CHECKING:
    from torch import nn

    from unskew.data import Dataset


class _ForwardProgress:
    """Passes the progress of one run on to that of the grid."""

    def __init__(self, cell: Cell, progress: GridProgress) -> None:
        self._cell, self._progress = cell, progress

    def begin(self, header: list[str], first: int, rounds: int) -> None:
        self._progress.update(self._cell, first, None, None)

    def round(self, round: int, accuracy: float | None, best: float) -> None:
        self._progress.update(self._cell, round, accuracy, best)

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def run_in_process(
    cells: Sequence[Cell],
    finished: set[str],
    out: Path,
    progress: GridProgress,
    *,
    name: str,
    data_dir: Path | None,
    data: Dataset | None,
    model: nn.Sequential | None,
) -> dict[str, str]:
    """Run the cells that are not finished; returns the reason of failure by name of the cell."""
    from unskew.runner.prepare_run import check_same_inputs
    from unskew.runner.run_experiment import run

    for cell in cells:
        if cell.name in finished:
            folder = folder_of(out, cell)
            check_same_inputs(read_manifest(folder) or {}, folder, cell.experiment, data, model)
    waiting = {cell.name: cell for cell in cells if cell.name not in finished}
    failed: dict[str, str] = {}
    try:
        progress.begin(cells, finished, 1)
        for cell in waiting.values():
            why = None
            try:
                run(
                    cell.experiment,
                    out=folder_of(out, cell),
                    resume=True,
                    name=name,
                    data=data,
                    model=model,
                    data_dir=data_dir,
                    show=_ForwardProgress(cell, progress),
                )
            except UserError as error:
                why = failed[cell.name] = str(error)
            except Exception as error:  # from the user's own code, as in a worker process
                why = failed[cell.name] = f"{type(error).__name__}: {error}"
            progress.cell_ended(cell, why)
    finally:
        progress.end()
    return failed
