"""The summary of a run: best, final, and the mean of the last rounds, with exact numbers."""

from __future__ import annotations

import pandas as pd
import pytest

from unskew.results.run_tables import METRICS, Summary, summarise

# Accuracy after rounds 1 to 12, all different; the best of them is neither the last nor among the last ten.
ACCURACY = [10.0, 97.0, 30.0, 41.0, 53.0, 66.0, 80.0, 71.0, 88.0, 79.0, 95.0, 93.0]


def summary_of(values: list[float], *more: tuple[int, str, float]) -> Summary:
    """Summary of a run with these test accuracies after rounds 1, 2, ..., the untrained model's, and further rows."""
    rows = [(0, "accuracy", 1000.0), *((t, "accuracy", value) for t, value in enumerate(values, 1)), *more]
    frame = [("run", "method", 0, t, "server", "test", metric, value) for t, metric, value in rows]
    return summarise("run", "method", pd.DataFrame(frame, columns=list(METRICS)), 0, 0, 0.0)


def test_mean_last10_of_twelve_rounds_is_over_exactly_the_last_ten() -> None:
    """Rounds 3 to 12: round 2, the eleventh from the end, is left out."""
    summary = summary_of(ACCURACY)
    assert summary.mean_last10 == pytest.approx(sum(ACCURACY[2:]) / 10, rel=1e-14)
    assert (summary.best, summary.best_round, summary.final) == (97.0, 2, 93.0)


@pytest.mark.parametrize("rounds", [1, 9, 10])
def test_mean_last10_of_at_most_ten_rounds_is_over_all_of_them(rounds: int) -> None:
    summary = summary_of(ACCURACY[:rounds])
    assert summary.mean_last10 == pytest.approx(sum(ACCURACY[:rounds]) / rounds, rel=1e-14)


def test_mean_last10_includes_the_model_after_the_exchanges_at_the_end() -> None:
    """That model counts as round 12 too: eleven values of ten rounds, of which it is the final one."""
    summary = summary_of(ACCURACY, (12, "end of run accuracy", 98.0))
    assert summary.mean_last10 == pytest.approx((sum(ACCURACY[2:]) + 98.0) / 11, rel=1e-14)
    assert (summary.best, summary.best_round, summary.final) == (98.0, 12, 98.0)
