"""Selection without the test set: choose rounds and candidates by accuracy on held-out training rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

import pandas as pd


@dataclass(frozen=True)
class SelectedRound:
    """The first round with the best validation accuracy, and the test accuracy of that round."""

    round: int
    validation: float
    test: float


def choose_round(metrics: pd.DataFrame) -> SelectedRound:
    """Choose the round of one run. Test accuracy is read only after the round is fixed; round 0 does not count."""
    rows = metrics[(metrics["who"] == "server") & (metrics["metric"] == "accuracy") & (metrics["round"] > 0)]
    validation = rows[rows["split"] == "validation"].sort_values("round")
    chosen = validation.iloc[int(validation["value"].to_numpy().argmax())]
    test = rows[(rows["split"] == "test") & (rows["round"] == chosen["round"])]
    return SelectedRound(int(chosen["round"]), float(chosen["value"]), float(test["value"].iloc[0]))


def choose_candidate(selected: Mapping[str, Mapping[int, SelectedRound]]) -> str:
    """The candidate with the best mean validation accuracy, the first of equals. selected: candidate -> seed -> round.

    Means over different seeds are not comparable, so only candidates with the largest number of seeds compete.
    """
    most = max(len(rounds) for rounds in selected.values())
    complete = {name: rounds for name, rounds in selected.items() if rounds and len(rounds) == most}
    means = {name: fmean(choice.validation for choice in rounds.values()) for name, rounds in complete.items()}
    return max(means, key=lambda name: means[name]) if means else next(iter(selected))
