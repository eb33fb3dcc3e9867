"""A grid from its cells to its table and report."""

from __future__ import annotations

from pathlib import Path

from unskew.compare import queue, write
from unskew.compare import table as tables
from unskew.compare.grid import Grid
from unskew.errors import UserError


def play(
    grid: Grid, out: Path, watch: queue.Watch, *, jobs: int | None = None, data_dir: Path | None = None
) -> tables.Table:
    """Play what is missing of the grid and write its table; other cells in the folder are left alone."""
    failed = queue.play(grid.cells, out, watch, name=grid.name, jobs=jobs, data_dir=data_dir)
    if failed and len(failed) == len({cell.name for cell in grid.cells}):
        raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
    table = tables.read(grid, out, failed)
    write.write(table, out)
    return table


def report(table: tables.Table, out: Path, metric: str) -> Path:
    """One page over the runs of the table."""
    from unskew.report import page

    return page.write([run for row in table.rows for run in row.runs], out / "report.html", table.name, metric)
