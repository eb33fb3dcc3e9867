"""The command line: `unskew run RECIPE [KEY=VALUE]...` and the other commands of `unskew.commands`."""

from __future__ import annotations

import platform
import signal
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from unskew.base.errors import StoppedByUser, UserError
from unskew.base.signals import on_signal
from unskew.commands.audit_command import audit
from unskew.commands.compare_command import compare
from unskew.commands.data_command import app as data_app
from unskew.commands.demo_command import demo
from unskew.commands.export_command import export
from unskew.commands.methods_command import methods
from unskew.commands.models_command import models
from unskew.commands.partition_command import partition
from unskew.commands.report_command import report
from unskew.commands.reproduce_command import reproduce
from unskew.commands.run_command import run

INTERRUPTED = 130
# Order of the help: what a new user needs first comes first. Commands that are not listed come last.
ORDER = ("demo", "run", "compare", "reproduce", "report", "audit", "partition", "methods", "models", "data", "export")


class OrderedCommands(TyperGroup):
    """Lists the commands in ORDER, not in the order of registration."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    cls=OrderedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Start with `unskew demo`. `unskew COMMAND --help` describes a command.",
)


def _print_version(wanted: bool) -> None:
    """Print what the packages say of themselves, because importing torch takes seconds."""
    if wanted:
        typer.echo(f"unskew {version('unskew')}, Python {platform.python_version()}, torch {version('torch')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print versions and exit")
    ] = False,
) -> None:
    """Simulate federated training across clients whose data is label-skewed, scarce or suddenly unavailable.

    Logs everything that leaves a client, and measures what it leaks.
    """


app.command()(run)
app.command()(compare)
app.command()(reproduce)
app.command()(demo)
app.command()(report)
app.command()(audit)
app.command()(partition)
app.command()(methods)
app.command()(models)
app.add_typer(data_app, name="data")
app.command()(export)


def _interrupt() -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line. Exit codes: 2 for a user's mistake (with one message), 130 for Ctrl-C (nothing is lost)."""
    on_signal(signal.SIGTERM, _interrupt)  # needed even if a shell made this process ignore Ctrl-C
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        on_signal(signal.SIGINT, _interrupt)
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # typer may turn Ctrl-C into a return value
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except UserError as error:
        typer.echo(f"unskew: {error}", err=True)
        sys.exit(2)
    except StoppedByUser as stop:
        typer.echo(f"unskew: {stop}", err=True)
        sys.exit(INTERRUPTED)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("unskew: stopped", err=True)
        sys.exit(INTERRUPTED)
    except Exception as error:
        # Usage errors carry their own message and exit code. Anything else is a bug and keeps its traceback.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    main()
