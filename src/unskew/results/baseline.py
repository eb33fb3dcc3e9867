"""Which method others are measured against: FedAvg where it is there, else the first."""

from __future__ import annotations

from collections.abc import Sequence

from unskew.results.finding import REFERENCE


def is_reference(method: str) -> bool:
    """By the method's own name, whatever a table or page calls it."""
    return method == REFERENCE


def reference_of(methods: Sequence[str]) -> int:
    """Its place among methods.

    >>> reference_of(["moon", "fedavg"]), reference_of(["moon", "fedprox"])
    (1, 0)
    """
    return next((i for i, method in enumerate(methods) if is_reference(method)), 0)
