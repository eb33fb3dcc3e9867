"""`unskew compare`: a grid of runs, its table, and which method leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unskew.base.errors import StoppedByUser, UserError
from unskew.base.paths import folder_path
from unskew.commands.shared_options import RUN_FAILED, STOPPED, DataDir, Imports, Jobs, Json, Overrides, Recipe, Seeds

if TYPE_CHECKING:
    from unskew.comparisons.comparison_table import ComparisonTable
    from unskew.comparisons.grid import Grid
    from unskew.reports.report_page import ExtraSection


def compare(
    recipe: Recipe,
    overrides: Overrides = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="such as fedavg,fedprox+avgm, or labels in the recipe")
    ] = None,
    seeds: Seeds = None,
    metric: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="best, final, mean_last10 (default), clients_mean, worst_tenth"),
    ] = None,
    select: Annotated[
        str | None, typer.Option(metavar="NAME", help="validation: choose tuned values and rounds on held-out rows")
    ] = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder_path, metavar="DIR", help="folder for all runs (default: runs/compare-RECIPE)"),
    ] = None,
    as_json: Json = False,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Run every method × setting × seed and report which leads.

    The recipe's section `compare` defines the grid, and options replace parts of it. Running the same command again
    runs only what is missing.
    """
    from unskew.comparisons import grid as grids

    names = [name.strip() for name in methods.split(",") if name.strip()] if methods is not None else None
    options: dict[str, Any] = {"methods": names, "seeds": seeds, "metric": metric, "select": select}
    grid = grids.load(recipe, overrides, {key: value for key, value in options.items() if value is not None})
    if metric and grid.compare.select:
        raise UserError(
            "--metric: with --select the metric is always the test accuracy at the selected round; drop one of the two"
        )
    run_and_print(grid, out or Path("runs") / f"compare-{grid.name}", jobs, as_json, data_dir)


def run_and_print(
    grid: Grid,
    out: Path,
    jobs: int | None,
    as_json: bool,
    data_dir: Path | None,
    audit: Callable[[Path, ComparisonTable], tuple[ExtraSection, Path]] | None = None,
) -> None:
    """Run a grid, print its table and finding, and exit with RUN_FAILED if a run failed.

    audit: attacks the finished runs; returns a section for the report and the path of its own page.
    """
    from unskew.comparisons.compare_methods import run_comparison
    from unskew.comparisons.progress import TerminalProgress

    try:
        done = run_comparison(grid, out, TerminalProgress(), jobs=jobs, data_dir=data_dir, audit=audit)
    except KeyboardInterrupt as stop:
        raise StoppedByUser(STOPPED) from stop
    if as_json:
        typer.echo(json.dumps(_as_dict(done.table) | {"out": str(out), "report": str(done.report)}))
    else:
        from unskew.comparisons.write_comparison import to_terminal
        from unskew.describe.terminal_tables import console

        console().print(to_terminal(done.table))
        typer.echo(f"{done.finding}\ntable:  {out}/table.csv, .md and .tex\nreport: {done.report}")
        if done.audit is not None:
            typer.echo(f"audit:  {done.audit}")
    if done.failed:
        raise typer.Exit(RUN_FAILED)


def _as_dict(table: ComparisonTable) -> dict[str, Any]:
    from unskew.comparisons.finding_per_setting import finding_text

    rows = [
        {"setting": row.setting, "method": row.label, "failed": {str(k): why for k, why in row.failed.items()}}
        | {measure: {str(k): value for k, value in row.scores[measure].items()} for measure in table.measures}
        for row in table.rows
    ]
    findings = {setting: finding_text(table, setting) for setting in table.settings}
    return {"name": table.name, "metric": table.metric, "finding": findings, "rows": rows}
