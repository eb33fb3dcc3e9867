"""A grid from its cells to its table and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.base.signals import remove_folder
from unskew.compare import process_pool
from unskew.compare.folder_lock import LOG, alone
from unskew.compare.grid import Grid

if TYPE_CHECKING:
    from unskew.compare.comparison_table import ComparisonTable
    from unskew.report.report_page import ExtraSection

PAGE = "report.html"
ANSWERS = ("table.csv", "table.md", "table.tex", "finding.txt", PAGE)


def play(
    grid: Grid, out: Path, watch: process_pool.GridProgress, *, jobs: int | None = None, data_dir: Path | None = None
) -> ComparisonTable:
    """Play what is missing of the grid and write its table; other cells in the folder are left alone.

    What an earlier grid answered is removed first: it must not be taken for the answer of this one.
    """
    with alone(out) as held:
        _clear(out)
        failed = process_pool.play(
            grid.cells, out, watch, held, name=grid.name, jobs=jobs, data_dir=data_dir, meanwhile=needed_later
        )
        if failed and len(failed) == len({cell.name for cell in grid.cells}):
            _leave_nothing(out)
            raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
        from unskew.compare import comparison_table as tables
        from unskew.compare import write_comparison

        table = tables.read(grid, out, failed)
        write_comparison.write(table, out)
        return table


def needed_later() -> None:
    """Imports of the answer, which bring pandas, scipy and matplotlib: no run waits for them, nor they for the runs."""
    import unskew.compare.comparison_page
    import unskew.compare.comparison_table
    import unskew.compare.write_comparison  # noqa: F401


def _leave_nothing(out: Path) -> None:
    """A grid that could not begin (its data are missing) leaves no folder behind."""
    cells = out / process_pool.CELLS
    begun = cells.exists() and any(cells.iterdir())
    if not begun and {path.name for path in out.iterdir()} <= {cells.name, ".lock", LOG}:
        remove_folder(out)


def _clear(out: Path) -> None:
    for name in ANSWERS:
        try:
            (out / name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{out / name}: cannot be removed ({error.strerror}); choose another --out") from error


def report(table: ComparisonTable, out: Path, extra: ExtraSection | None = None) -> Path:
    """One page over the runs of the table."""
    from unskew.compare import comparison_page

    return comparison_page.write(table, out / PAGE, extra=extra)
