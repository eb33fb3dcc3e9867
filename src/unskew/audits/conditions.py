"""The conditions that decide how much an attack can recover, in words: batch, steps, learning rate, round and net."""

from __future__ import annotations

from unskew.results.load_run import LoadedRun


def conditions(run: LoadedRun) -> list[str]:
    """One sentence for each recorded round of a run."""
    config = run.config
    local, metrics = config.local, run.metrics
    accuracy = metrics[(metrics["who"] == "server") & (metrics["split"] == "test") & (metrics["metric"] == "accuracy")]
    work = f"{local.steps} local step{'s' * (local.steps != 1)}" if local.steps is not None else (
        f"{local.epochs} local epoch{'s' * (local.epochs != 1)}")  # fmt: skip
    sentences = []
    for round in config.record.rounds:
        before = accuracy[accuracy["round"] < round].sort_values("round")
        trained = f" with a test accuracy of {before['value'].iloc[-1]:.1f} % before it" if len(before) else ""
        sentences.append(
            f"round {round} of {config.rounds}: batches of {local.batch}, {work}, learning rate "
            f"{local.lr_at(round, config.rounds):g}, {config.model.name}{trained}"
        )
    return sentences
