"""What a person types: `unskew run RECIPE [key=value ...]`, and the commands of `unskew.commands`."""

from __future__ import annotations

import signal
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from unskew.base.errors import StoppedByUser, UserError
from unskew.base.signals import listen
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
# What a newcomer needs first comes first in the help; a command that is not named here comes last.
ORDER = ("demo", "run", "compare", "reproduce", "report", "audit", "partition", "methods", "models", "data", "export")


class OrderedCommands(TyperGroup):
    """Commands in the order of a person's questions, whatever file registers them first."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


app = typer.Typer(
    cls=OrderedCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Start with `unskew demo`; `unskew COMMAND --help` tells more about each.",
)


@app.callback()
def about() -> None:
    """Federated learning on label-skewed, scarce and absent client data, with the privacy leak measured."""


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


def _end() -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line: a user's mistake is one message and exit code 2, Ctrl-C is 130 and loses nothing."""
    listen(signal.SIGTERM, _end)  # also where a shell made this process ignore Ctrl-C itself
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        listen(signal.SIGINT, _end)
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
        # Usage errors carry their own message and exit code; anything else is ours and keeps its traceback.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    main()
