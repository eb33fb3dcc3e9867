"""The progress of a run: header and live bar with accuracy and time left, in a terminal or a notebook; else lines."""

from __future__ import annotations

import time
from html import escape

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from unskew.base.notebook import LiveHtml, progress_bar

LONG = 60.0  # seconds; the expected duration of a longer run is printed
LINES = 20  # most plain lines of a run


class TerminalDisplay:
    """Prints to standard error, because standard output is for results."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self._bar: Progress | None = None

    def begin(self, header: list[str], first: int, rounds: int) -> None:
        for line in header:
            self.console.print(line, soft_wrap=True, markup=False)
        if first:
            self.console.print(f"resume     after round {first}")
        self._first, self._rounds, self._began, self._estimate_printed = first, rounds, time.monotonic(), False
        self._warm = self._began  # end of the first round, which includes one-off costs
        if self.console.is_terminal:
            columns = (
                TextColumn("round"),
                MofNCompleteColumn(),
                BarColumn(),
                TextColumn("{task.fields[accuracy]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console)
            self._task = self._bar.add_task("rounds", total=rounds, completed=first, accuracy="")
            self._bar.start()

    def round(self, round: int, accuracy: float | None, best: float) -> None:
        text = f"accuracy {accuracy:5.2f} %  best {best:5.2f} %" if accuracy is not None else f"best {best:5.2f} %"
        self._print_estimate_once(round)
        if self._bar:
            self._bar.update(self._task, completed=round, accuracy=text)
        elif round % max(self._rounds // LINES, 1) == 0 or round == self._rounds:
            self.console.print(f"round {round}/{self._rounds}  {text}  {self._left(round)} left")

    def note(self, text: str) -> None:
        """A line that stays above the bar."""
        self.console.print(text, soft_wrap=True, markup=False)

    def end(self) -> None:
        if self._bar:
            self._bar.stop()

    def _per_round(self, round: int) -> float:
        rounds = round - self._first - 1
        return (time.monotonic() - self._warm) / rounds if rounds > 0 else time.monotonic() - self._began

    def _left(self, round: int) -> str:
        seconds = self._per_round(round) * (self._rounds - round)
        return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"

    def _print_estimate_once(self, round: int) -> None:
        """Print the expected duration after the second round, because the first has one-off costs."""
        if round == self._first + 1:
            self._warm = time.monotonic()
        elif not self._estimate_printed:
            self._estimate_printed, total = True, self._per_round(round) * (self._rounds - self._first)
            if total > LONG:
                self.console.print(
                    f"time       about {total / 60:.0f} min in total; Ctrl-C is safe, --resume continues"
                )


class NotebookDisplay:
    """A bar below the running cell, with the header to unfold."""

    def begin(self, header: list[str], first: int, rounds: int) -> None:
        self._output, self._rounds = LiveHtml(), rounds
        self._first, self._began, self._last = first, time.monotonic(), progress_bar(first, rounds, "")
        lines = "\n".join(header)
        self._header = f"<details><summary>{escape(header[0])}</summary><pre>{escape(lines)}</pre></details>"
        self._output.show(self._header + self._last, last=True)

    def round(self, round: int, accuracy: float | None, best: float) -> None:
        seconds = (time.monotonic() - self._began) / (round - self._first) * (self._rounds - round)
        current = f"accuracy {accuracy:.2f} %, " if accuracy is not None else ""
        self._last = progress_bar(round, self._rounds, f"{current}best {best:.2f} %, {seconds:.0f} s left")
        self._output.show(self._header + self._last)

    def note(self, text: str) -> None:
        self._header += f"<div>{escape(text)}</div>"

    def end(self) -> None:
        self._output.show(self._header + self._last, last=True)
