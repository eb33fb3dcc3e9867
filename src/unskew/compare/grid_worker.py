"""Worker process that runs cells one after another, with JSON lines on stdin and stdout.

Started as `python -m unskew.compare.grid_worker`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import IO, Any

from unskew.base.errors import UserError
from unskew.base.signals import listen

INTERRUPTED = 130


class ProgressWriter:
    """Tells the other end how a run goes; nobody there any more is a request to end."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def tell(self, what: str, **more: Any) -> None:
        try:
            self._out.write(json.dumps({"what": what} | more) + "\n")
            self._out.flush()
        except BrokenPipeError:
            raise KeyboardInterrupt from None

    def begin(self, header: list[str], first: int, rounds: int) -> None:
        self.tell("begin", round=first)

    def round(self, round: int, accuracy: float | None, best: float) -> None:
        self.tell("round", round=round, accuracy=accuracy, best=best)

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def serve(lines: IO[str], teller: ProgressWriter) -> None:
    """Play every cell that comes, until the other end closes."""
    from unskew.config.recipe import validate
    from unskew.runner.run_experiment import run

    for line in lines:
        cell = json.loads(line)
        folder = Path(cell["folder"])
        try:
            experiment = validate(cell["experiment"], folder.name)
            run(experiment, out=folder, resume=True, name=cell["name"], data_dir=cell["data_dir"], show=teller)
        except UserError as error:
            teller.tell("failed", why=str(error))
        except Exception as error:
            traceback.print_exc()
            teller.tell("failed", why=f"{type(error).__name__}: {error} (its traceback is in workers.log)")
        else:
            teller.tell("done")


def _end() -> None:
    """The first request to end stops the run, which then saves; a second one must not stop the saving."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Ctrl-C reaches every process of a terminal and is for the parent, which then asks to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listen(signal.SIGTERM, _end)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    code = 0
    try:
        serve(sys.stdin, ProgressWriter(out))
    except KeyboardInterrupt:
        code = INTERRUPTED
    # All is closed and written. Python would take torch apart piece by piece, which the comparison waits for: 0.7 s.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
