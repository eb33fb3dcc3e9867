"""Run a plan's cells and write the output: a table compared with the paper's, or a figure."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.comparisons import process_pool
from unskew.comparisons.cells import GridProgress, folder_of
from unskew.comparisons.folder_lock import KIND, lock_folder
from unskew.comparisons.grid import Cell
from unskew.comparisons.run_grid import import_for_report
from unskew.reproductions.target_plan import TargetPlan
from unskew.results import owned_folder
from unskew.results.atomic_write import write_output
from unskew.results.load_run import LoadedRun, load

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

    from unskew.comparisons.comparison_table import ComparisonTable
    from unskew.reproductions.compare_to_paper import PaperComparison

PAGE = "report.html"
TABLES = ("table.csv", "table.md")
KINDS = ("csv", "svg", "png")  # file types of a figure


@dataclass(frozen=True)
class TargetRuns:
    """Finished runs by cell, and why the others failed."""

    finished: tuple[tuple[Cell, LoadedRun], ...]
    failed: dict[str, str]
    data_dir: Path | None = None  # for figures that read the dataset again


def run_cells(
    plan: TargetPlan,
    runs: Path,
    progress: GridProgress,
    *,
    jobs: int | None = None,
    data_dir: Path | None = None,
) -> TargetRuns:
    """Run the cells that are missing under `runs`, which targets may share: equal experiments have one folder."""
    with lock_folder(runs) as log:
        if _needs_no_runs(plan):
            return TargetRuns((), {}, data_dir)
        cells, name = plan.grid.cells, plan.grid.name
        failed = process_pool.run_cells(
            cells,
            runs,
            progress,
            log,
            name=name,
            jobs=jobs,
            data_dir=data_dir,
            while_running=import_for_report,
        )
    if len(failed) == len({cell.name for cell in plan.grid.cells}):
        raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
    finished = [cell for cell in plan.grid.cells if cell.name not in failed]
    return TargetRuns(tuple((cell, load(folder_of(runs, cell))) for cell in finished), failed, data_dir)


def _needs_no_runs(plan: TargetPlan) -> bool:
    """Whether the target is a figure of what is fixed before the first round."""
    if not plan.target.is_figure:
        return False
    from unskew.reproductions.figures import FIGURES

    return FIGURES[plan.target.name].planned


def output_files(plan: TargetPlan) -> list[str]:
    """Names of the files that a target writes."""
    return [f"{plan.target.key}.{kind}" for kind in KINDS] if plan.target.is_figure else [*TABLES, PAGE]


def write_table(plan: TargetPlan, done: TargetRuns, out: Path) -> tuple[ComparisonTable, PaperComparison]:
    """Write table.csv and table.md; returns our table and its comparison with the paper."""
    from unskew.comparisons.comparison_table import build_table
    from unskew.reproductions import write_target
    from unskew.reproductions.compare_to_paper import compare_with_paper

    runs = {cell.name: run for cell, run in done.finished}
    table = build_table(plan.grid, lambda cell: runs[cell.name], done.failed)
    comparison = compare_with_paper(plan, table)
    owned_folder.mark(out, KIND)
    write_target.write(comparison, out)
    (out / PAGE).unlink(missing_ok=True)  # of an earlier table
    return table, comparison


def write_report(plan: TargetPlan, table: ComparisonTable, comparison: PaperComparison, out: Path) -> Path:
    """Write an HTML report on the runs, with the paper's numbers."""
    from unskew.comparisons import comparison_page
    from unskew.reproductions.write_target import describe_deviations

    numbers = {(c.column, c.method): f"{c.printed.mean:g}" for c in comparison.cells if c.printed}
    printed = {
        (row.setting, row.label): numbers.get((plan.columns[row.setting].label, row.label), "") for row in table.rows
    }
    note = " ".join(
        text for text in (table.note, f"Preset {comparison.preset}.", describe_deviations(comparison)) if text
    )
    return comparison_page.write(replace(table, note=note), out / PAGE, printed)


def figure_data(plan: TargetPlan, done: TargetRuns) -> pd.DataFrame:
    """A figure's table, from its runs."""
    from unskew.reproductions.figure_table import with_run_columns
    from unskew.reproductions.figures import FIGURES
    from unskew.reproductions.target_cells import FinishedCell, PlannedCell

    figure = FIGURES[plan.target.name]
    if figure.planned:
        return figure.data(
            [PlannedCell(c.method, plan.column_of(c), c.seed, c.experiment, done.data_dir) for c in plan.grid.cells]
        )
    runs = [
        FinishedCell(cell.method, plan.column_of(cell), cell.seed, run, done.data_dir) for cell, run in done.finished
    ]
    return with_run_columns(plan, figure.data(runs)) if figure.more_than_curves else figure.data(runs)


def write_figure(plan: TargetPlan, data: pd.DataFrame, out: Path) -> list[Path]:
    """Write the figure as CSV, SVG and PNG; returns the paths."""
    from unskew.reproductions.deviations import run_note
    from unskew.reproductions.figures import FIGURES

    papers = {setting: column.paper for setting, column in plan.columns.items()}
    picture = FIGURES[plan.target.name].draw(
        data, note=run_note(plan.grid.cells, papers, plan.changed, plan.preset, plan.preset_changes)
    )
    text = data.to_csv(index=False, lineterminator="\n").encode()
    owned_folder.mark(out, KIND)
    for name, contents in zip(output_files(plan), (text, _render(picture, "svg"), _render(picture, "png"))):
        write_output(out / name, contents)
    return [out / name for name in output_files(plan)]


def _render(picture: Picture, kind: str) -> bytes:
    """The encoded picture. Without a date and random element ids, equal pictures give equal bytes."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "unskew"}):
        picture.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
