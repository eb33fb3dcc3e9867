"""Accuracy of one model for each client, and how it is distributed over the clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def accuracy_by_label_shares(confusion: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Percent by client: the accuracy on each class, weighted by the client's share of that class.

    confusion: [C, C] of the test set, true class by prediction; counts: [K, C] rows of the clients. Classes without
    test rows are left out; NaN for a client that has no others.

    >>> accuracy_by_label_shares(np.array([[9, 1], [5, 5]]), np.array([[10, 0], [1, 3]])).tolist()
    [90.0, 60.0]
    """
    rows = confusion.sum(1)
    by_class = 100 * confusion.diagonal() / np.maximum(rows, 1)
    known = counts * (rows > 0)
    with np.errstate(invalid="ignore"):
        return (known * by_class).sum(1) / known.sum(1)


def accuracy_on_own_rows(confusions: np.ndarray) -> np.ndarray:
    """Percent by client on its own test rows. confusions: [K, C, C]; NaN for a client without test rows."""
    with np.errstate(invalid="ignore"):
        return 100 * np.trace(confusions, axis1=1, axis2=2) / confusions.sum((1, 2))


def worst_tenth(accuracies: Sequence[float]) -> float:
    """Mean of the lowest tenth of the clients, at least one.

    >>> worst_tenth([50.0, 10.0, 90.0]), worst_tenth(list(range(20)))
    (10.0, 0.5)
    """
    lowest = sorted(accuracies)[: math.ceil(len(accuracies) / 10)]
    return float(np.mean(lowest)) if lowest else math.nan


def client_accuracy(metrics: pd.DataFrame) -> pd.DataFrame:
    """Rows: round, client, value; empty unless the run had `evaluate.clients`. The last round is the final model's."""
    rows = metrics[(metrics["split"] == "test") & metrics["who"].str.startswith("client-")]
    end = rows[rows["metric"] == "end of run accuracy"]
    rows = rows[(rows["metric"] == "accuracy") & ~rows["round"].isin(end["round"].unique())]
    import pandas as pd

    rows = pd.concat([rows, end])
    return rows.assign(client=rows["who"].str.removeprefix("client-").astype(int))[["round", "client", "value"]]


def final_client_accuracy(metrics: pd.DataFrame) -> pd.DataFrame:
    """Rows: client, value of the final model; empty if none of its clients has test rows."""
    rows = client_accuracy(metrics)
    return rows[rows["round"] == metrics["round"].max()][["client", "value"]]
