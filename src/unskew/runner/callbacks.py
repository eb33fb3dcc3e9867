"""Who is told how a run goes: what a person sees, and callbacks, which look at a round and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from unskew.base.errors import UserError
from unskew.results.metric_rows import MetricRow

if TYPE_CHECKING:
    import pandas as pd


class ProgressDisplay(Protocol):
    """Who is told how a run goes."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


class NoDisplay:
    """Nobody is told."""

    def begin(self, header: list[str], first: int, rounds: int) -> None: ...

    def round(self, round: int, accuracy: float | None, best: float) -> None: ...

    def note(self, text: str) -> None: ...

    def end(self) -> None: ...


@dataclass(frozen=True)
class Round:
    """A complete round as a callback sees it: copies, so that nothing done to them reaches the run."""

    round: int
    rows: tuple[MetricRow, ...]
    accuracy: float | None  # on the test rows, in percent; None where the round was not evaluated
    best: float

    @property
    def frame(self) -> pd.DataFrame:
        """The rows as a table, made anew every time."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(MetricRow._fields))


Callback = Callable[[Round], object]


def tell(callbacks: Iterable[Callback], done: Round) -> None:
    """Call all of them. One that fails stops the run like an interruption, and the message says whose fault it is."""
    for callback in callbacks:
        try:
            callback(Round(done.round, done.rows, done.accuracy, done.best))
        except Exception as error:
            name = getattr(callback, "__qualname__", "") or f"{type(callback).__module__}.{type(callback).__qualname__}"
            raise UserError(
                f"callback {name}: failed after round {done.round} with {type(error).__name__}: {error}; the run is "
                "kept up to that round: mend or remove the callback, then go on with --resume (resume=True in Python)"
            ) from error
