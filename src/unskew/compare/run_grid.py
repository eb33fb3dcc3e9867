"""Run a grid, and write its table and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.base.signals import remove_folder
from unskew.compare import process_pool
from unskew.compare.folder_lock import LOG, lock_folder
from unskew.compare.grid import Grid

if TYPE_CHECKING:
    from unskew.compare.comparison_table import ComparisonTable
    from unskew.report.report_page import ExtraSection

PAGE = "report.html"
OUTPUTS = ("table.csv", "table.md", "table.tex", "finding.txt", PAGE)


def run(
    grid: Grid, out: Path, progress: process_pool.GridProgress, *, jobs: int | None = None, data_dir: Path | None = None
) -> ComparisonTable:
    """Run the cells that are missing and write the table; other runs in the folder are not touched.

    Output of an earlier grid is deleted first, because it must not be mistaken for that of this one.
    """
    with lock_folder(out) as log:
        _remove_outputs(out)
        failed = process_pool.run_cells(
            grid.cells, out, progress, log,
            name=grid.name, jobs=jobs, data_dir=data_dir, while_running=import_for_report,
        )  # fmt: skip
        if failed and len(failed) == len({cell.name for cell in grid.cells}):
            _remove_if_empty(out)
            raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
        from unskew.compare import comparison_table, write_comparison

        table = comparison_table.read_table(grid, out, failed)
        write_comparison.write(table, out)
        return table


def import_for_report() -> None:
    """Import pandas, scipy and matplotlib for the table and the report while the first runs train."""
    import unskew.compare.comparison_page
    import unskew.compare.comparison_table
    import unskew.compare.write_comparison  # noqa: F401


def _remove_if_empty(out: Path) -> None:
    """Remove the folder if no run began, for instance because the dataset is missing."""
    cells = out / process_pool.CELLS
    begun = cells.exists() and any(cells.iterdir())
    if not begun and {path.name for path in out.iterdir()} <= {cells.name, ".lock", LOG}:
        remove_folder(out)


def _remove_outputs(out: Path) -> None:
    for name in OUTPUTS:
        try:
            (out / name).unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"{out / name}: cannot be deleted ({error.strerror}); choose another --out") from error


def write_report(table: ComparisonTable, out: Path, extra: ExtraSection | None = None) -> Path:
    """Write the page about the runs of the table."""
    from unskew.compare import comparison_page

    return comparison_page.write(table, out / PAGE, extra=extra)
