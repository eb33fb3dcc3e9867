"""`unskew report`: the HTML page over any runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import UserError

if TYPE_CHECKING:
    from unskew.results.load_run import LoadedRun


def report(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs, or folders that hold such folders")],
    out: Annotated[Path, typer.Option(help="where the page goes")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="the page's title; methods and data without it")] = None,
    metric: Annotated[str, typer.Option(help="what decides: mean_last10, best or final")] = "mean_last10",
) -> None:
    """Write one HTML page about runs: finding, figures, costs."""
    from unskew.report.report_page import title_of, write

    loaded = [run for given in runs for run in load_runs(given)]
    typer.echo(f"kept in {write(loaded, out, title or title_of(loaded), metric)}")


def load_runs(given: Path) -> list[LoadedRun]:
    """The run in the folder itself, else all finished runs below it, by name; others are told and left out."""
    from unskew.results.load_run import load

    if (given / "config.yaml").is_file():
        return [load(given)]
    found = []
    # By their checkpoints: a tracker keeps a config.yaml of its own below a run.
    for manifest in sorted(given.rglob("checkpoint/manifest.json")):
        try:
            run = load(manifest.parents[1])
            run.read_tables()
        except UserError as error:
            why, folder = " ".join(str(error).split()), str(manifest.parents[1])
            typer.echo(f"unskew: left out: {why if folder in why else f'{folder}: {why}'}", err=True)
        else:
            found.append(run)
    if not found:
        raise UserError(
            f"{given}: expected the folder of a run or a folder that holds finished ones, found none in or below it; "
            "runs lie under runs/"
        )
    return found
