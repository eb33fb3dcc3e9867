"""`unskew report`: the HTML page over any runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.commands.shared_options import Imports


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="run folders, or folders that contain them")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="page to write")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="title of the page (default: methods and data)")
    ] = None,
    metric: Annotated[
        str,
        typer.Option(metavar="NAME", show_default=False, help="as in unskew compare --help"),
    ] = "mean_last10",
    imports: Imports = None,
) -> None:
    """Write an HTML report on runs: finding, figures, costs."""
    from unskew.reports.report_runs import report as write_report

    def print_skipped(text: str) -> None:
        typer.echo(f"unskew: {text}", err=True)

    typer.echo(f"report: {write_report(runs, out, title=title, metric=metric, skipped=print_skipped)}")
