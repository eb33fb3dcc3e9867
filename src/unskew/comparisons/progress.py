"""Progress of a comparison: a live table on standard error or in a notebook, or plain lines elsewhere."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rich import box
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from unskew.base.notebook import LiveHtml, html_table, in_notebook
from unskew.comparisons.cells import GridProgress
from unskew.comparisons.grid import Cell


@dataclass
class _Progress:
    """Progress of one run."""

    rounds: int
    round: int = 0
    began: int = 0  # the round from which it was resumed
    accuracy: float | None = None
    state: str = "waiting"  # then running, then done or failed; finished: before this call

    def text(self) -> str:
        if self.state in ("waiting", "failed"):
            return self.state
        accuracy = "" if self.accuracy is None else f" {self.accuracy:5.2f} %"
        return f"{self.round}/{self.rounds}{accuracy}" if self.state == "running" else f"done{accuracy}"


class TerminalProgress:
    """Shows all cells; equal experiments are one run."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._live: Live | None = None

    def begin(self, cells: Sequence[Cell], finished: set[str], jobs: int) -> None:
        self._cells, self._began = cells, time.monotonic()
        self._ready: float | None = None  # when the first worker was ready
        self._runs = {cell.name: _Progress(cell.experiment.rounds) for cell in cells}
        for name in finished:
            run = self._runs[name]
            run.state, run.round, run.began = "finished", run.rounds, run.rounds
        before = f", {len(finished)} already finished" if finished else ""
        missing = len(self._runs) > len(finished)
        parallel = f", {jobs} in parallel; Ctrl-C is safe" if missing else ""
        self.console.print(f"compare    {len(self._runs)} runs{before}{parallel}")
        if missing:
            self._start_live()

    def _start_live(self) -> None:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self.console, refresh_per_second=4)
            self._live.start()

    def update(self, cell: Cell, round: int, accuracy: float | None, best: float | None) -> None:
        run, self._ready = self._runs[cell.name], self._ready or time.monotonic()
        if run.state != "running":
            run.state, run.began = "running", round
        run.round, run.accuracy = round, run.accuracy if accuracy is None else accuracy

    def cell_ended(self, cell: Cell, failure: str | None) -> None:
        run = self._runs[cell.name]
        run.state = "failed" if failure else "done"
        run.rounds = run.round  # no rounds remain, even if it failed or stopped early
        if self._live is None:
            result = f"failed: {failure}" if failure else f"final {run.accuracy:.2f} %" if run.accuracy else "done"
            ended = sum(run.state in ("done", "failed", "finished") for run in self._runs.values())
            name = ", ".join(word for word in (cell.label, cell.setting, f"seed {cell.seed}") if word)
            self.console.print(
                f"{ended}/{len(self._runs)}  {name}: {result}  {self._left()} left", soft_wrap=True, markup=False
            )

    def end(self) -> None:
        if self._live:
            self._live.stop()

    def _left(self) -> str:
        """Time left, assuming that all rounds take as long as those so far."""
        done = sum(run.round - run.began for run in self._runs.values())
        missing = sum(run.rounds - run.round for run in self._runs.values())
        if not missing:
            return "0 s"
        if not done or self._ready is None:
            return "unknown time"
        seconds = missing * (time.monotonic() - self._ready) / done
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

    def _table(self) -> Table:
        head, rows, caption = self._numbers()
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption)
        for title in head:
            table.add_column(title, no_wrap=title not in ("setting", "method"))
        for row in rows:
            table.add_row(*map(escape, row))
        return table

    def _numbers(self) -> tuple[list[str], list[list[str]], str]:
        """A row per setting and method, a column per seed; and the time."""
        seeds = sorted({cell.seed for cell in self._cells})
        settings = any(cell.setting for cell in self._cells)
        elapsed = time.monotonic() - self._began
        caption = f"{elapsed:.0f} s, {self._left()} left"
        head = ["setting"] * settings + ["method", *(f"seed {seed}" for seed in seeds), "accuracy so far"]
        rows = []
        for setting, label in dict.fromkeys((cell.setting, cell.label) for cell in self._cells):
            runs = {c.seed: self._runs[c.name] for c in self._cells if (c.setting, c.label) == (setting, label)}
            known = [run.accuracy for run in runs.values() if run.accuracy is not None]
            mean = f"{fmean(known):5.2f} %" if known else ""
            texts = [runs[seed].text() for seed in seeds]
            rows.append([*[setting] * settings, label, *texts, mean])
        return head, rows, caption


class NotebookProgress(TerminalProgress):
    """The table below the running cell of a notebook."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO(), force_jupyter=False))

    def _start_live(self) -> None:
        self._output = LiveHtml()
        self._show()

    def update(self, cell: Cell, round: int, accuracy: float | None, best: float | None) -> None:
        super().update(cell, round, accuracy, best)
        self._show()

    def cell_ended(self, cell: Cell, failure: str | None) -> None:
        super().cell_ended(cell, failure)
        self._show(last=True)

    def _show(self, last: bool = False) -> None:
        head, rows, caption = self._numbers()
        self._output.show(f"{html_table(head, rows)}<div>{escape(caption)}</div>", last)


class NoProgress(TerminalProgress):
    """Shows nothing."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO(), force_jupyter=False))


def grid_progress(show: bool | None) -> GridProgress:
    """The progress that a caller asked for. None: a table in notebooks and terminals, else nothing."""
    if show is not False and in_notebook():
        return NotebookProgress()
    return TerminalProgress() if show or (show is None and sys.stderr.isatty()) else NoProgress()
