"""`unskew compare`: a grid of runs, its table, and who is ahead."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.base.errors import StoppedByUser, UserError

if TYPE_CHECKING:
    from unskew.compare.comparison_table import ComparisonTable
    from unskew.compare.grid import Grid
    from unskew.report.report_page import ExtraSection

FAILED = 2
WIDTH = 120  # columns where there is no terminal to fit
Jobs = Annotated[int | None, typer.Option(min=1, help="runs side by side; the cores without it, or 6 on a GPU")]
Json = Annotated[bool, typer.Option("--json", help="print one JSON line instead of the table")]


def compare(
    recipe: Annotated[
        str, typer.Argument(help="a YAML file or the name of a recipe; its section compare: is the grid")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for every run, such as rounds=50")] = None,
    methods: Annotated[str | None, typer.Option(help="fedavg,fedprox+avgm,...: labels of the grid or methods")] = None,
    seeds: Annotated[str | None, typer.Option(help="0,1,2 or 0-4")] = None,
    metric: Annotated[str | None, typer.Option(help="best, final or mean_last10: what the verdict looks at")] = None,
    select: Annotated[
        str | None, typer.Option(help="validation: choose tuned values and rounds on held-out training rows")
    ] = None,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help="folder of all runs; runs/compare-<recipe> without it")] = None,
    as_json: Json = False,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Play methods x settings x seeds and say who is ahead. Started again, it plays only what is missing."""
    from unskew.compare import grid as grids

    names = [name.strip() for name in methods.split(",") if name.strip()] if methods is not None else None
    given: dict[str, Any] = {"methods": names, "seeds": seeds, "metric": metric, "select": select}
    grid = grids.load(recipe, overrides, {key: value for key, value in given.items() if value is not None})
    if metric and grid.compare.select:
        raise UserError("--metric: with a selection the metric is the test accuracy at the chosen round; drop one")
    play_and_tell(grid, out or Path("runs") / f"compare-{grid.name}", jobs, as_json, data_dir)


def play_and_tell(
    grid: Grid,
    out: Path,
    jobs: int | None,
    as_json: bool,
    data_dir: Path | None,
    more: Callable[[Path, ComparisonTable], tuple[ExtraSection, Path]] | None = None,
) -> None:
    """Play a grid, print its table and finding, and end with a code of its own where a run failed.

    more: what else belongs into the report, and a page of its own.
    """
    from rich.console import Console

    from unskew.compare import run_grid as games
    from unskew.compare.progress import TerminalProgress

    try:
        table = games.play(grid, out, TerminalProgress(), jobs=jobs, data_dir=data_dir)
        extra, other = more(out, table) if more else (None, None)
        page = games.report(table, out, extra)
    except KeyboardInterrupt as stop:
        raise StoppedByUser("stopped; the same command goes on after the last complete round of every run") from stop
    if as_json:
        typer.echo(json.dumps(_as_dict(table) | {"out": str(out), "report": str(page)}))
    else:
        from unskew.compare.finding_per_setting import in_words
        from unskew.compare.write_comparison import to_screen

        console = Console(highlight=False)
        (console if console.is_terminal else Console(highlight=False, width=WIDTH)).print(to_screen(table))
        typer.echo(f"{in_words(table)}\ntable in {out}/table.csv, .md and .tex\nreport in {page}")
        if other is not None:
            typer.echo(f"audit in {other}")
    if any(row.failed for row in table.rows):
        raise typer.Exit(FAILED)


def _as_dict(table: ComparisonTable) -> dict[str, Any]:
    from unskew.compare.finding_per_setting import finding

    rows = [
        {"setting": row.setting, "method": row.label, "failed": {str(k): why for k, why in row.failed.items()}}
        | {measure: {str(k): value for k, value in row.scores[measure].items()} for measure in table.measures}
        for row in table.rows
    ]
    found = {setting: finding(table, setting) for setting in table.settings}
    return {"name": table.name, "metric": table.metric, "finding": found, "rows": rows}
