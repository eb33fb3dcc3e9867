"""A plan from its cells to the answers: a table beside the paper's, or a figure."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.compare import queue
from unskew.compare.alone import alone
from unskew.compare.grid import Cell
from unskew.compare.play import needed_later
from unskew.reproduce.plan import Plan
from unskew.results.load import Loaded, load
from unskew.results.whole import write_whole

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

    from unskew.compare.table import Table
    from unskew.reproduce.beside import Beside

PAGE = "report.html"
TABLES = ("table.csv", "table.md")
KINDS = ("csv", "svg", "png")  # of a figure


@dataclass(frozen=True)
class Done:
    """What was played: runs by cell, and why others failed."""

    played: tuple[tuple[Cell, Loaded], ...]
    failed: dict[str, str]
    data_dir: Path | None = None  # of the rows, for figures that look at them again


def play(
    plan: Plan, runs: Path, out: Path, watch: queue.Watch, *, jobs: int | None = None, data_dir: Path | None = None
) -> Done:
    """Play what is missing under `runs`, which tables and figures may share: equal experiments have one folder.

    Earlier answers in `out` are removed first: they must not be taken for those of these cells.
    """
    with alone(runs) as held:
        for name in answers(plan):
            (out / name).unlink(missing_ok=True)
        if _is_planned(plan):
            return Done((), {}, data_dir)
        cells, name = plan.grid.cells, plan.grid.name
        failed = queue.play(cells, runs, watch, held, name=name, jobs=jobs, data_dir=data_dir, meanwhile=needed_later)
    if len(failed) == len({cell.name for cell in plan.grid.cells}):
        raise UserError("every run failed:\n" + "\n".join(dict.fromkeys(failed.values())))
    whole = [cell for cell in plan.grid.cells if cell.name not in failed]
    return Done(tuple((cell, load(queue.folder_of(runs, cell))) for cell in whole), failed, data_dir)


def _is_planned(plan: Plan) -> bool:
    """Whether the target shows what is fixed before the first round."""
    if not plan.target.is_figure:
        return False
    from unskew.reproduce.figures import FIGURES

    return FIGURES[plan.target.name].planned


def answers(plan: Plan) -> list[str]:
    """The files that a target leaves."""
    return [f"{plan.target.key}.{kind}" for kind in KINDS] if plan.target.is_figure else [*TABLES, PAGE]


def table(plan: Plan, done: Done, out: Path) -> tuple[Table, Beside]:
    """table.csv and table.md: our numbers, and beside the paper's."""
    from unskew.compare.table import lay_out
    from unskew.reproduce import write
    from unskew.reproduce.beside import beside

    runs = {cell.name: run for cell, run in done.played}
    ours = lay_out(plan.grid, lambda cell: runs[cell.name], done.failed)
    found = beside(plan, ours)
    write.write(found, out)
    return ours, found


def report(plan: Plan, ours: Table, found: Beside, out: Path) -> Path:
    """One page over the runs, with the paper's numbers."""
    from unskew.compare import page
    from unskew.reproduce.write import likeness

    numbers = {(c.column, c.method): f"{c.printed.mean:g}" for c in found.cells if c.printed}
    printed = {
        (row.setting, row.label): numbers.get((plan.columns[row.setting].label, row.label), "") for row in ours.rows
    }
    note = " ".join(text for text in (ours.note, f"Preset {found.preset}.", likeness(found)) if text)
    return page.write(replace(ours, note=note), out / PAGE, printed)


def data(plan: Plan, done: Done) -> pd.DataFrame:
    """A figure's table from its runs."""
    from unskew.reproduce.figures import FIGURES
    from unskew.reproduce.kept import keyed
    from unskew.reproduce.played import Planned, Played

    figure = FIGURES[plan.target.name]
    if figure.planned:
        return figure.data(
            [Planned(c.method, plan.column_of(c), c.seed, c.experiment, done.data_dir) for c in plan.grid.cells]
        )
    runs = [Played(cell.method, plan.column_of(cell), cell.seed, run, done.data_dir) for cell, run in done.played]
    return keyed(plan, figure.data(runs)) if figure.more_than_curves else figure.data(runs)


def figure(plan: Plan, data: pd.DataFrame, out: Path) -> list[Path]:
    """The figure's table and picture."""
    from unskew.reproduce.figures import FIGURES
    from unskew.reproduce.likeness import how_played

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
