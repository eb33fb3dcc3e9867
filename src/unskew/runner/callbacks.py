"""Progress displays and callbacks of a run; a callback sees each complete round and cannot change it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from unskew.base.errors import UserError
from unskew.base.notebook import in_notebook
from unskew.results.metric_rows import MetricRow

if TYPE_CHECKING:
    import pandas as pd


class ProgressDisplay(Protocol):
    """Shows a person the progress of a run."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class NoDisplay:
    """Shows nothing."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


def display_for(show: ProgressDisplay | bool | None) -> ProgressDisplay:
    """The display that a caller asked for. None: a bar in notebooks and terminals, else nothing."""
    if isinstance(show, bool) or show is None:
        from unskew.runner import run_progress  # imports rich

        if show is not False and in_notebook():
            return run_progress.NotebookDisplay()
        return run_progress.TerminalDisplay() if show or (show is None and sys.stderr.isatty()) else NoDisplay()
    return show


@dataclass(frozen=True)
class Round:
    """A complete round as a callback sees it: a copy, so that changes to it cannot affect the run."""

    round: int
    rows: tuple[MetricRow, ...]
    accuracy: float | None  # on the test rows, in percent; None if the round was not evaluated
    best: float

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a table, a new one on every access."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(MetricRow._fields))


Callback = Callable[[Round], object]


def notify(callbacks: Iterable[Callback], done: Round) -> None:
    """Call all callbacks. One that fails stops the run like an interruption, and the error names it."""
    for callback in callbacks:
        try:
            callback(Round(done.round, done.rows, done.accuracy, done.best))
        except Exception as error:
            name = getattr(callback, "__qualname__", "") or f"{type(callback).__module__}.{type(callback).__qualname__}"
            raise UserError(
                f"callback {name}: failed after round {done.round} with {type(error).__name__}: {error}; the run is "
                "saved up to that round: fix or remove the callback and continue with --resume (resume=True in Python)"
            ) from error
