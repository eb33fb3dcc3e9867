"""An audit in the terminal: a bar while it searches, and its findings in words."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from unskew.audit.audit_run import Audit


class AttackProgress:
    """One bar per attack, on stderr, where a person looks; nothing where nobody does."""

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

    def tell(self, what: str, done: int, total: int) -> None:
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)


STATES = {"recovered": "recovered", "resisted": "resisted at this budget", "unknown": "not attacked"}


def in_words(audit: Audit) -> str:
    """The verdict on each kind, and how the attacker thought."""
    lines = [f"{verdict.kind}: {STATES[verdict.state]}. {verdict.words}" for verdict in audit.verdicts]
    right = [leak.value for leak in audit.leaks if leak.attack == "labels"]
    if right:
        lines.append(f"labels: {sum(right) / len(right):.0f} % inferred from the last layer")
    lines += [f"membership by {one.words}" for one in audit.membership]
    lines += [f"{skipped.metric}: skipped, {skipped.reason}" for skipped in audit.skipped]
    if audit.notes:
        lines.append(f"the client's round: {'; '.join(audit.notes)}")
    return "\n".join(lines)
