"""An audit in the terminal: progress bars while attacks run, and a summary of the result."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from unskew.audits.audit_run import Audit


class AttackProgress:
    """One progress bar per attack on stderr; silent if stderr is not a terminal."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description:>8}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")
        console = Console(stderr=True)
        self._bars = Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal)
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._bars.stop()

    def update(self, attack: str, done: int, total: int) -> None:
        if attack not in self._tasks:
            self._tasks[attack] = self._bars.add_task(attack, total=total)
        self._bars.update(self._tasks[attack], completed=done, total=total)


STATES = {"recovered": "recovered", "resisted": "resisted at this budget", "unknown": "not attacked"}


def summarise(audit: Audit) -> str:
    """One line per verdict, then labels, membership, skipped metrics and the attacker's model of local training."""
    lines = [f"{verdict.kind}: {STATES[verdict.state]}. {verdict.words}" for verdict in audit.verdicts]
    accuracies = [leak.value for leak in audit.leaks if leak.attack == "labels"]
    if accuracies:
        lines.append(f"labels: {sum(accuracies) / len(accuracies):.0f} % correctly inferred from the last layer")
    lines += [f"membership by {result.summary}" for result in audit.membership]
    lines += [f"{skipped.metric}: skipped, {skipped.reason}" for skipped in audit.skipped]
    if audit.notes:
        lines.append(f"local training: {'; '.join(audit.notes)}")
    return "\n".join(lines)
