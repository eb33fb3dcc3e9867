"""The conditions that decide how much an attack can recover, in words: batch, steps, learning rate, round and net."""

from __future__ import annotations

from collections.abc import Callable

from unskew.protocol.work import Work
from unskew.results.load_run import LoadedRun


def conditions(run: LoadedRun, work_at: Callable[[int], Work]) -> list[str]:
    """One sentence for each recorded round of a run. work_at: the work of a round, with the parts' changes."""
    config = run.config
    metrics = run.metrics
    accuracy = metrics[(metrics["who"] == "server") & (metrics["split"] == "test") & (metrics["metric"] == "accuracy")]
    sentences = []
    for round in config.record.rounds:
        work = work_at(round)
        number, unit = (work.steps, "local step") if work.steps is not None else (work.epochs, "local epoch")
        before = accuracy[accuracy["round"] < round].sort_values("round")
        trained = ""
        if len(before):
            last = before.iloc[-1]
            trained = f" with a test accuracy of {last['value']:.1f} % after round {int(last['round'])}"
        amount = f"{number} {unit}{'s' * (number != 1)}"
        sentences.append(
            f"round {round} of {config.rounds}: batches of {work.batch}, {amount}, learning rate {work.lr:g}, "
            f"{config.model.name}{trained}"
        )
    return sentences
