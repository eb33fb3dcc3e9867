"""`unskew run`: one method on one federation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from unskew.base.errors import StoppedByUser


def run(
    recipe: Annotated[
        str, typer.Argument(help="a YAML file, or the name of a recipe that comes with unskew, such as quick")
    ],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as method.prox.mu=0.1 seed=3")] = None,
    out: Annotated[
        Path | None, typer.Option(help="folder of the run; runs/<recipe>-<method>-s<seed>-<hash> without it")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with the run in that folder, if there is one")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON line last")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Train one method and keep everything about it in a folder."""
    from unskew.config import recipe as recipes
    from unskew.runner.run_experiment import run as play
    from unskew.runner.run_progress import TerminalDisplay

    name, experiment = recipes.load(recipe, overrides)
    try:
        done = play(experiment, out=out, resume=resume, name=name, data_dir=data_dir, show=TerminalDisplay())
    except KeyboardInterrupt as stop:
        raise StoppedByUser("stopped; the same command with --resume goes on after the last complete round") from stop
    summary = asdict(done.summary)
    if as_json:
        keys = ("run", "method", "best", "best_round", "final", "bytes_up", "bytes_down", "seconds")
        typer.echo(json.dumps({key: summary[key] for key in keys}))
    else:
        typer.echo(in_words(summary))


def in_words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    up, down = summary["bytes_up"] / 1e6, summary["bytes_down"] / 1e6
    late = f", last ten {summary['mean_last10']:.2f} %" if summary["last_round"] >= 10 else ""
    stopped = f"stopped after round {summary['last_round']}: {summary['stopped']}\n" if summary["stopped"] else ""
    return (
        f"{summary['method']}: best {summary['best']:.2f} % in round {summary['best_round']}, "
        f"final {summary['final']:.2f} %{late}; "
        f"{up:.1f} MB up, {down:.1f} MB down, {summary['seconds']:.1f} s\n{stopped}kept in {summary['run']}"
    )
