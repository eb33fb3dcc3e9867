"""The tables of a run, from which everything that is plotted or reported is read, and its summary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.notebook import html_table
from unskew.base.signals import uninterrupted
from unskew.results.client_accuracy import final_client_accuracy, worst_tenth
from unskew.results.format_numbers import in_bytes, in_seconds

if TYPE_CHECKING:
    import pandas as pd  # imported when a table is made, because the import would delay a run's first round

METRICS = ("run", "method", "seed", "round", "who", "split", "metric", "value")
LEDGER = ("round", "phase", "client", "direction", "part", "artefact", "kind", "bytes")
LAST_ROUNDS = 10  # rounds whose mean accuracy is reported
TIMES = ("round", "what", "seconds")
CLIENTS = ("client", "class", "rows")


@dataclass
class RowBuffer:
    """A growing table; new rows become columns only when the table is read."""

    columns: tuple[str, ...]
    _done: pd.DataFrame | None = None
    _new: list[tuple[Any, ...]] = field(default_factory=list)

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._new.extend(rows)

    def frame(self) -> pd.DataFrame:
        """All rows in the order in which they were added."""
        if self._new or self._done is None:
            import pandas as pd

            fresh = pd.DataFrame(self._new, columns=list(self.columns))
            frames = [self._done, fresh] if self._done is not None and len(self._done) else [fresh]
            self._done, self._new = pd.concat(frames, ignore_index=True), []
        return self._done

    # Delay Ctrl-C: pandas asks NumPy whether a column's type is "string", and NumPy treats an interruption as no.
    @uninterrupted()
    def to_bytes(self) -> bytes:
        """The rows as a parquet file."""
        return self.frame().to_parquet(index=False)

    @classmethod
    @uninterrupted()
    def read(cls, columns: tuple[str, ...], path: Path) -> RowBuffer:
        import pandas as pd

        return cls(columns, pd.read_parquet(path))


@dataclass(frozen=True)
class Summary:
    """The main results of a run; accuracies in percent."""

    run: str
    method: str
    best: float
    best_round: int
    final: float
    mean_last10: float
    bytes_up: int
    bytes_down: int
    seconds: float
    last_round: int = 0  # the last that was run
    stopped: str = ""  # why the run stopped before its configured number of rounds
    # Accuracy of the final model over the clients; None without `evaluate.clients`
    clients_mean: float | None = None
    worst_tenth: float | None = None

    def describe(self) -> str:
        """The results in words, and where they are."""
        last_ten = f", mean of last ten {self.mean_last10:.2f} %" if self.last_round >= LAST_ROUNDS else ""
        stopped = f"stopped after round {self.last_round}: {self.stopped}\n" if self.stopped else ""
        return (
            f"{self.method}: best {self.best:.2f} % in round {self.best_round}, final {self.final:.2f} %{last_ten}; "
            f"{self.bytes_up / 1e6:.1f} MB up, {self.bytes_down / 1e6:.1f} MB down, {self.seconds:.1f} s\n"
            f"{self._clients()}{stopped}saved to {self.run}"
        )

    def _clients(self) -> str:
        if self.clients_mean is None:
            return ""
        return f"accuracy for each client: mean {self.clients_mean:.2f} %, worst tenth {self.worst_tenth:.2f} %\n"

    def _repr_html_(self) -> str:
        """A table with one row, for notebooks."""
        cells = {
            "method": self.method,
            "best, %": f"{self.best:.2f} (round {self.best_round})",
            "final, %": f"{self.final:.2f}",
            **({"mean of last ten, %": f"{self.mean_last10:.2f}"} if self.last_round >= LAST_ROUNDS else {}),
            **({} if self.clients_mean is None else {"mean over clients, %": f"{self.clients_mean:.2f}"}),
            **({} if self.worst_tenth is None else {"worst tenth of clients, %": f"{self.worst_tenth:.2f}"}),
            "sent up": in_bytes(self.bytes_up),
            "sent down": in_bytes(self.bytes_down),
            "time": in_seconds(self.seconds),
            "folder": self.run,
        }
        return html_table(cells, [cells.values()])


def test_accuracy(metrics: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of the server's model on the test set by round; round 0, the untrained model, is left out."""
    rows = metrics[(metrics["who"] == "server") & (metrics["split"] == "test") & (metrics["metric"] == "accuracy")]
    return rows[rows["round"] > 0].sort_values("round")


def best_accuracy(metrics: pd.DataFrame) -> float:
    """Best accuracy so far."""
    return float(test_accuracy(metrics)["value"].max()) if len(test_accuracy(metrics)) else 0.0


def summarise(run: str, method: str, metrics: pd.DataFrame, up: int, down: int, seconds: float) -> Summary:
    """Best and final accuracy, the mean of the last rounds, bytes and seconds."""
    rows = test_accuracy(metrics)
    if rows.empty:
        return Summary(run, method, float("nan"), 0, float("nan"), float("nan"), up, down, seconds)
    of_server = (metrics["who"] == "server") & (metrics["split"] == "test")
    end_rows = metrics[of_server & (metrics["metric"] == "end of run accuracy")]
    # The final model is the one after the exchanges at the end, which may change it.
    accuracy, rounds = (np.concatenate([rows[name], end_rows[name]]) for name in ("value", "round"))
    best = int(accuracy.argmax())
    late = float(accuracy[rounds > rounds[-1] - LAST_ROUNDS].mean())
    numbers = (float(accuracy[best]), int(rounds[best]), float(accuracy[-1]), late, up, down, seconds)
    clients = final_client_accuracy(metrics)["value"].tolist()
    if not clients:
        return Summary(run, method, *numbers)
    return Summary(run, method, *numbers, clients_mean=float(np.mean(clients)), worst_tenth=worst_tenth(clients))
