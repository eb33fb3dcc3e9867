"""The progress of an audit: a bar per attack in a terminal or a notebook; and a summary of its result."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from unskew.audits.audit_run import Audit
from unskew.audits.verdict import STATES, strongest
from unskew.base.notebook import LiveHtml, in_notebook, progress_bar


class AttackProgress:
    """One progress bar per attack on standard error."""

    def __init__(self, shown: bool) -> None:
        columns = TextColumn("{task.description:>10}"), BarColumn(), TextColumn("{task.percentage:3.0f} %")
        self._bars = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not shown)
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


class NotebookAttackProgress:
    """One bar per attack below the running cell of a notebook."""

    def __enter__(self) -> Self:
        self._output, self._bars = LiveHtml(), dict[str, str]()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._output.show("".join(self._bars.values()), last=True)

    def update(self, attack: str, done: int, total: int) -> None:
        self._bars[attack] = progress_bar(done, total, attack)
        self._output.show("".join(self._bars.values()))


def audit_progress(show: bool | None) -> AttackProgress | NotebookAttackProgress:
    """The progress that a caller asked for. None: bars in notebooks and terminals, else nothing."""
    if show is not False and in_notebook():
        return NotebookAttackProgress()
    return AttackProgress(shown=show or (show is None and sys.stderr.isatty()))


def summarise(audit: Audit, earlier: Sequence[Audit] = ()) -> str:
    """One line per verdict, then labels, membership, skipped metrics and the attacker's model of local training.

    earlier: other audits of the run; a verdict of theirs that is stronger is printed too.
    """
    lines = [f"{verdict.kind}: {STATES[verdict.state]}. {verdict.words}" for verdict in audit.verdicts]
    own = {verdict.words for verdict in audit.verdicts}
    top = strongest([audit.verdicts, *(other.verdicts for other in earlier)])
    stronger = [verdict for verdict in top if verdict.words not in own]
    lines += [f"{each.kind}, by an earlier audit: {STATES[each.state]}. {each.words}" for each in stronger]
    lines += audit.conditions
    accuracies = [leak.value for leak in audit.leaks if leak.attack == "labels"]
    if accuracies:
        lines.append(f"labels: {sum(accuracies) / len(accuracies):.0f} % correctly inferred from the last layer")
    lines += [f"membership by {result.summary}" for result in audit.membership]
    lines += [f"{skipped.metric}: skipped, {skipped.reason}" for skipped in audit.skipped]
    if audit.notes:
        lines.append(f"local training: {'; '.join(audit.notes)}")
    return "\n".join(lines)
