"""`unskew report`: the HTML page over any runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.errors import UserError


def report(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, or folders that hold such folders")],
    out: Annotated[Path, typer.Option(help="where the page goes")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="the page's title; methods and data without it")] = None,
    metric: Annotated[str, typer.Option(help="what decides: mean_last10, best or final")] = "mean_last10",
) -> None:
    """Write one HTML page about runs: finding, figures, costs."""
    from unskew.report.page import title_of, write
    from unskew.results.load import load

    loaded = [load(folder) for given in runs for folder in run_folders(given)]
    typer.echo(f"kept in {write(loaded, out, title or title_of(loaded), metric)}")


def run_folders(given: Path) -> list[Path]:
    """The folder itself if it is a run, else all runs below it, by name."""
    if (given / "config.yaml").is_file():
        return [given]
    found = sorted(path.parent for path in given.rglob("config.yaml"))
    if not found:
        raise UserError(
            f"{given}: expected the folder of a run or a folder that holds some, found no config.yaml in or below it; "
            "runs lie under runs/"
        )
    return found
