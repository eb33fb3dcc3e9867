"""`unskew run`: one method on one federation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import StoppedByUser
from unskew.base.paths import folder_path
from unskew.commands.shared_options import DataDir, Imports, Overrides, Recipe


def run(
    recipe: Recipe,
    overrides: Overrides = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder_path, metavar="DIR", help="run folder (default: runs/RECIPE-METHOD-sSEED-HASH)"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in that folder if there is one")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the summary as one line of JSON")] = False,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Train one method and save the run to a folder.

    Any key of the recipe can be changed, for instance: unskew run quick method=fedprox method.prox.mu=0.1 seed=3
    """
    from unskew.config import recipe as recipes
    from unskew.runner.run_experiment import run as run_experiment
    from unskew.runner.run_progress import TerminalDisplay

    name, experiment = recipes.load(recipe, overrides)
    try:
        done = run_experiment(experiment, out=out, resume=resume, name=name, data_dir=data_dir, show=TerminalDisplay())
    except KeyboardInterrupt as stop:
        raise StoppedByUser(
            "stopped; run the same command with --resume to continue after the last complete round"
        ) from stop
    summary = asdict(done.summary)
    if as_json:
        keys = ("run", "method", "best", "best_round", "final", "bytes_up", "bytes_down", "seconds")
        typer.echo(json.dumps({key: summary[key] for key in keys}))
    else:
        typer.echo(done.summary.describe())
