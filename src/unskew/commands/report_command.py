"""`unskew report`: the HTML page over any runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import UserError
from unskew.commands.shared_options import Imports

if TYPE_CHECKING:
    from unskew.results.load_run import LoadedRun


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="run folders, or folders that contain them")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="page to write")] = Path("report.html"),
    title: Annotated[
        str | None, typer.Option(metavar="TEXT", help="title of the page (default: methods and data)")
    ] = None,
    metric: Annotated[
        str, typer.Option(metavar="NAME", show_default=False, help="mean_last10 (the default), best or final")
    ] = "mean_last10",
    imports: Imports = None,
) -> None:
    """Write an HTML report on runs: finding, figures, costs."""
    from unskew.reports.report_page import title_of, write

    loaded = [run for folder in runs for run in load_runs(folder)]
    typer.echo(f"report: {write(loaded, out, title or title_of(loaded), metric)}")


def load_runs(folder: Path) -> list[LoadedRun]:
    """The run in the folder itself, else all finished runs below it by name; warns about those it leaves out."""
    from unskew.results.load_run import load

    if (folder / "config.yaml").is_file():
        return [load(folder)]
    runs = []
    # Search for checkpoints: a tracker may keep a config.yaml of its own below a run.
    for manifest in sorted(folder.rglob("checkpoint/manifest.json")):
        try:
            run = load(manifest.parents[1])
            run.read_tables()
        except UserError as error:
            why, path = " ".join(str(error).split()), str(manifest.parents[1])
            typer.echo(f"unskew: skipped: {why if path in why else f'{path}: {why}'}", err=True)
        else:
            runs.append(run)
    if not runs:
        raise UserError(
            f"{folder}: expected the folder of a run, or a folder that contains finished runs; found none in or below "
            "it (by default runs are saved under runs/)"
        )
    return runs
