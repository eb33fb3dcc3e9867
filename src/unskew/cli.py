"""What a person types: `unskew run RECIPE [key=value ...]`, and the commands of `unskew.commands`."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from unskew.commands.compare import compare
from unskew.commands.data import app as data_app
from unskew.commands.demo import demo
from unskew.commands.export import export
from unskew.commands.methods import methods
from unskew.commands.models import models
from unskew.commands.partition import partition
from unskew.commands.report import report
from unskew.errors import Stopped, UserError

INTERRUPTED = 130
# What a newcomer needs first comes first in the help; a command that is not named here comes last.
ORDER = ("demo", "run", "compare", "report", "partition", "methods", "models", "data", "export")


class Ordered(TyperGroup):
    """Commands in the order of a person's questions, whatever file registers them first."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    cls=Ordered,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Start with `unskew demo`; `unskew COMMAND --help` tells more about each.",
)


@app.callback()
def about() -> None:
    """Federated learning on label-skewed, scarce and absent client data, with the privacy leak measured."""


@app.command()
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
    from unskew import recipe as recipes
    from unskew.run import run as play
    from unskew.show import Terminal

    name, experiment = recipes.load(recipe, overrides)
    done = play(experiment, out=out, resume=resume, name=name, data_dir=data_dir, show=Terminal())
    summary = asdict(done.summary)
    if as_json:
        keys = ("run", "method", "best", "best_round", "final", "bytes_up", "bytes_down", "seconds")
        typer.echo(json.dumps({key: summary[key] for key in keys}))
    else:
        typer.echo(in_words(summary))


app.command()(compare)
app.command()(demo)
app.command()(report)
app.command()(partition)
app.command()(methods)
app.command()(models)
app.add_typer(data_app, name="data")
app.command()(export)


def in_words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    up, down = summary["bytes_up"] / 1e6, summary["bytes_down"] / 1e6
    stopped = f"stopped after round {summary['last_round']}: {summary['stopped']}\n" if summary["stopped"] else ""
    return (
        f"{summary['method']}: best {summary['best']:.2f} % in round {summary['best_round']}, "
        f"final {summary['final']:.2f} %, last ten {summary['mean_last10']:.2f} %; "
        f"{up:.1f} MB up, {down:.1f} MB down, {summary['seconds']:.1f} s\n{stopped}kept in {summary['run']}"
    )


def _end(number: int, frame: object) -> None:
    """A request to end is a Ctrl-C, also where a shell made this process ignore Ctrl-C itself."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line: a user's mistake is one message and exit code 2, Ctrl-C is 130 and loses nothing."""
    signal.signal(signal.SIGTERM, _end)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # typer may turn Ctrl-C into a return value
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except UserError as error:
        typer.echo(f"unskew: {error}", err=True)
        sys.exit(2)
    except Stopped as stop:
        typer.echo(f"unskew: {stop}", err=True)
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("unskew: stopped; the same command with --resume goes on after the last complete round", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        # Usage errors carry their own message and exit code; anything else is ours and keeps its traceback.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    main()
