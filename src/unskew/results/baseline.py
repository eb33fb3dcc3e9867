"""The baseline that other methods are compared with: FedAvg if present, else the first method."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.results.finding import BASELINE


def is_baseline(method: str) -> bool:
    """By the method's registered name, not by the label of a table or page."""
    return method == BASELINE


def baseline_index(methods: Sequence[str]) -> int:
    """The index of the baseline among methods.

    >>> baseline_index(["moon", "fedavg"]), baseline_index(["moon", "fedprox"])
    (1, 0)
    """
    return next((i for i, method in enumerate(methods) if is_baseline(method)), 0)
