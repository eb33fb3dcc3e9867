"""When a run may be resumed with more rounds: only if the longer run would have had the same first rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.config.experiment import Experiment
from unskew.protocol.method import Method

if TYPE_CHECKING:
    import pandas as pd


def is_longer(old: Experiment, new: Experiment) -> bool:
    """Whether the two differ in nothing but a larger `rounds`."""
    return new.rounds > old.rounds and _with_rounds(old, new.rounds).identity() == new.identity()


def reasons_against(old: Experiment, new: Experiment, manifest: dict[str, Any] | None) -> list[str]:
    """Why the finished rounds would be others in the longer run; empty if they would not."""
    if manifest is None:
        return []
    reasons = []
    done = range(1, manifest["round"] + 1)
    if any(old.local.work(t, old.rounds) != new.local.work(t, new.rounds) for t in done):
        reasons.append(f"local.schedule={new.local.schedule.name} spreads the learning rate over all rounds")
    if any(each.scenario is not None for each in new.absence):
        reasons.append("absence: the scenario's leaves are shares of all rounds")
    method: Method = new.create_method()
    for part in method.parts:
        if manifest["finished"] and part.exchange is not None and part.exchange.when == "at the end":
            reasons.append(f"the exchange of {part.name} at the end of the run has taken place")
    return reasons + [f"{name} reads the number of rounds" for name in manifest.get("readers_of_rounds", ())]


def adopt_rows(metrics: pd.DataFrame, run: str, experiment: Experiment) -> pd.DataFrame:
    """The rows of the shorter run without the extra evaluation of its last round, under the longer run's name."""
    due = (metrics["round"] % experiment.evaluate.every == 0) | (metrics["round"] == experiment.rounds)
    scores = metrics["split"].isin(("test", "validation"))
    return metrics[due | ~scores].assign(run=run).reset_index(drop=True)


def _with_rounds(experiment: Experiment, rounds: int) -> Experiment:
    return experiment.model_copy(update={"rounds": rounds})
