"""Worker process that runs cells one after another, with JSON lines on stdin and stdout.

Started as `python -m unskew.comparisons.grid_worker`.
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
from unskew.base.signals import on_signal
from unskew.comparisons.folder_lock import LOCK_TIMEOUT

INTERRUPTED = 130


class ProgressWriter:
    """Reports the progress of a run to the parent process; a closed pipe means that the worker should stop."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out

    def send(self, event: str, **more: Any) -> None:
        try:
            self._out.write(json.dumps({"event": event} | more) + "\n")
            self._out.flush()
        except BrokenPipeError:
            raise KeyboardInterrupt from None

    def begin(self, header: list[str], first: int, rounds: int) -> None:
        self.send("begin", round=first)

    def round(self, round: int, accuracy: float | None, best: float) -> None:
        self.send("round", round=round, accuracy=accuracy, best=best)

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def serve(lines: IO[str], progress: ProgressWriter) -> None:
    """Run every cell that arrives, until the parent closes the pipe."""
    from unskew.config.recipe import validate
    from unskew.config.user_code import check_unchanged, import_for_worker
    from unskew.runner.provenance import JOBS
    from unskew.runner.run_experiment import run

    for line in lines:
        cell = json.loads(line)
        folder = Path(cell["folder"])
        os.environ[JOBS] = str(cell["jobs"])
        try:
            import_for_worker(cell["imports"], cell["search"])
            experiment = validate(cell["experiment"], folder.name)
            check_unchanged(cell["experiment"]["imports"], experiment.resolved()["imports"])
            run(
                experiment,
                out=folder,
                resume=True,
                name=cell["name"],
                data_dir=cell["data_dir"],
                show=progress,
                patience=LOCK_TIMEOUT,  # a worker of a killed comparison may still be saving this run
            )
        except UserError as error:
            progress.send("failed", why=str(error))
        except Exception as error:
            traceback.print_exc()
            progress.send("failed", why=f"{type(error).__name__}: {error} (traceback in workers.log)")
        else:
            progress.send("done")


def _interrupt() -> None:
    """Stop the run, which then saves; further SIGTERMs are ignored so that they cannot interrupt the saving."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    """Serve cells until stdin closes or SIGTERM arrives.

    Ctrl-C reaches every process of the terminal and is ignored here: the parent handles it and sends SIGTERM.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_signal(signal.SIGTERM, _interrupt)
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may print: keep that out of the JSON lines
    code = 0
    try:
        serve(sys.stdin, ProgressWriter(out))
    except KeyboardInterrupt:
        code = INTERRUPTED
    # Everything is written and closed. A normal exit would tear torch down, and the comparison would wait 0.7 s for it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
