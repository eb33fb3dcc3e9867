"""Choosing without the test set: rounds and candidates by accuracy on held-out training rows."""

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
    """Of one run. The test rows are looked up after the round is fixed; the untrained model does not count."""
    rows = metrics[(metrics["who"] == "server") & (metrics["metric"] == "accuracy") & (metrics["round"] > 0)]
    validation = rows[rows["split"] == "validation"].sort_values("round")
    chosen = validation.iloc[int(validation["value"].to_numpy().argmax())]
    test = rows[(rows["split"] == "test") & (rows["round"] == chosen["round"])]
    return SelectedRound(int(chosen["round"]), float(chosen["value"]), float(test["value"].iloc[0]))


def choose_candidate(found: Mapping[str, Mapping[int, SelectedRound]]) -> str:
    """Of candidate -> seed -> choice, the candidate with the best mean validation accuracy; the first of equals.

    Means over other seeds would not compare, so candidates that miss some are left out if any has all.
    """
    most = max(len(choices) for choices in found.values())
    whole = {name: choices for name, choices in found.items() if choices and len(choices) == most}
    means = {name: fmean(choice.validation for choice in choices.values()) for name, choices in whole.items()}
    return max(means, key=lambda name: means[name]) if means else next(iter(found))
