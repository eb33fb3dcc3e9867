"""A plan from its cells to the answers: a table beside the paper's, or a figure."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.compare import process_pool
from unskew.compare.folder_lock import alone
from unskew.compare.grid import Cell
from unskew.compare.run_grid import needed_later
from unskew.reproduce.target_plan import TargetPlan
from unskew.results.atomic_write import write_whole
from unskew.results.load_run import LoadedRun, load

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

    from unskew.compare.comparison_table import ComparisonTable
    from unskew.reproduce.compare_to_paper import PaperComparison

PAGE = "report.html"
TABLES = ("table.csv", "table.md")
KINDS = ("csv", "svg", "png")  # of a figure


@dataclass(frozen=True)
class TargetRuns:
    """What was played: runs by cell, and why others failed."""

    played: tuple[tuple[Cell, LoadedRun], ...]
    failed: dict[str, str]
    data_dir: Path | None = None  # of the rows, for figures that look at them again


def play(
    plan: TargetPlan,
    runs: Path,
    out: Path,
    watch: process_pool.GridProgress,
    *,
    jobs: int | None = None,
    data_dir: Path | None = None,
) -> TargetRuns:
    """Play what is missing under `runs`, which tables and figures may share: equal experiments have one folder.

    Earlier answers in `out` are removed first: they must not be taken for those of these cells.
    """
    with alone(runs) as held:
        for name in answers(plan):
            (out / name).unlink(missing_ok=True)
        if _is_planned(plan):
            return TargetRuns((), {}, data_dir)
        cells, name = plan.grid.cells, plan.grid.name
        failed = process_pool.play(
            cells, runs, watch, held, name=name, jobs=jobs, data_dir=data_dir, meanwhile=needed_later
        )
    if len(failed) == len({cell.name for cell in plan.grid.cells}):
        raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
    whole = [cell for cell in plan.grid.cells if cell.name not in failed]
    return TargetRuns(tuple((cell, load(process_pool.folder_of(runs, cell))) for cell in whole), failed, data_dir)


def _is_planned(plan: TargetPlan) -> bool:
    """Whether the target shows what is fixed before the first round."""
    if not plan.target.is_figure:
        return False
    from unskew.reproduce.figures import FIGURES

    return FIGURES[plan.target.name].planned


def answers(plan: TargetPlan) -> list[str]:
    """The files that a target leaves."""
    return [f"{plan.target.key}.{kind}" for kind in KINDS] if plan.target.is_figure else [*TABLES, PAGE]


def table(plan: TargetPlan, done: TargetRuns, out: Path) -> tuple[ComparisonTable, PaperComparison]:
    """table.csv and table.md: our numbers, and beside the paper's."""
    from unskew.compare.comparison_table import lay_out
    from unskew.reproduce import write_target
    from unskew.reproduce.compare_to_paper import beside

    runs = {cell.name: run for cell, run in done.played}
    ours = lay_out(plan.grid, lambda cell: runs[cell.name], done.failed)
    found = beside(plan, ours)
    write_target.write(found, out)
    return ours, found


def report(plan: TargetPlan, ours: ComparisonTable, found: PaperComparison, out: Path) -> Path:
    """One page over the runs, with the paper's numbers."""
    from unskew.compare import comparison_page
    from unskew.reproduce.write_target import likeness

    numbers = {(c.column, c.method): f"{c.printed.mean:g}" for c in found.cells if c.printed}
    printed = {
        (row.setting, row.label): numbers.get((plan.columns[row.setting].label, row.label), "") for row in ours.rows
    }
    note = " ".join(text for text in (ours.note, f"Preset {found.preset}.", likeness(found)) if text)
    return comparison_page.write(replace(ours, note=note), out / PAGE, printed)


def data(plan: TargetPlan, done: TargetRuns) -> pd.DataFrame:
    """A figure's table from its runs."""
    from unskew.reproduce.figure_table import keyed
    from unskew.reproduce.figures import FIGURES
    from unskew.reproduce.target_cells import FinishedCell, PlannedCell

    figure = FIGURES[plan.target.name]
    if figure.planned:
        return figure.data(
            [PlannedCell(c.method, plan.column_of(c), c.seed, c.experiment, done.data_dir) for c in plan.grid.cells]
        )
    runs = [FinishedCell(cell.method, plan.column_of(cell), cell.seed, run, done.data_dir) for cell, run in done.played]
    return keyed(plan, figure.data(runs)) if figure.more_than_curves else figure.data(runs)


def figure(plan: TargetPlan, data: pd.DataFrame, out: Path) -> list[Path]:
    """The figure's table and picture."""
    from unskew.reproduce.deviations import how_played
    from unskew.reproduce.figures import FIGURES

    papers = {setting: column.paper for setting, column in plan.columns.items()}
    picture = FIGURES[plan.target.name].draw(data, note=how_played(plan.grid.cells, papers, plan.changed))
    text = data.to_csv(index=False, lineterminator="\n").encode()
    for name, contents in zip(answers(plan), (text, _drawn(picture, "svg"), _drawn(picture, "png"))):
        write_whole(out / name, contents)
    return [out / name for name in answers(plan)]


def _drawn(picture: Picture, kind: str) -> bytes:
    """The same bytes for the same picture: no date, and names of parts that do not depend on chance."""
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "unskew"}):
        picture.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()
