"""Run a grid, and write its table and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.comparisons import process_pool
from unskew.comparisons.cells import GridProgress
from unskew.comparisons.folder_lock import lock_folder
from unskew.comparisons.grid import Grid

if TYPE_CHECKING:
    from torch import nn

    from unskew.comparisons.comparison_table import ComparisonTable
    from unskew.data import Dataset
    from unskew.reports.report_page import ExtraSection

PAGE = "report.html"


def run(
    grid: Grid,
    out: Path,
    progress: GridProgress,
    *,
    jobs: int | None = None,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
) -> ComparisonTable:
    """Run the cells that are missing and write the table; other runs in the folder are not touched.

    The table of an earlier grid is replaced only when there is a new one, and its report is removed with it.
    """
    with lock_folder(out) as log:
        failed = process_pool.run_cells(
            grid.cells, out, progress, log,
            name=grid.name, jobs=jobs, data_dir=data_dir, data=data, model=model, while_running=import_for_report,
        )  # fmt: skip
        if failed and len(failed) == len({cell.name for cell in grid.cells}):
            raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
        from unskew.comparisons import comparison_table, write_comparison

        table = comparison_table.read_table(grid, out, failed)
        write_comparison.write(table, out)
        (out / PAGE).unlink(missing_ok=True)
        return table


def import_for_report() -> None:
    """Import pandas, scipy and matplotlib for the table and the report while the first runs train."""
    import unskew.comparisons.comparison_page
    import unskew.comparisons.comparison_table
    import unskew.comparisons.write_comparison  # noqa: F401


def write_report(table: ComparisonTable, out: Path, extra: ExtraSection | None = None) -> Path:
    """Write the page about the runs of the table."""
    from unskew.comparisons import comparison_page

    return comparison_page.write(table, out / PAGE, extra=extra)
