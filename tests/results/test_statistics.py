"""Intervals and verdicts over seeds."""

import math

import numpy as np
import pytest
from scipy import stats

from unskew.results.statistics import common, difference, mean_and_std, verdict


def test_interval_of_a_paired_difference_equals_scipys():
    scores, rival = {0: 61.0, 1: 63.5, 2: 60.0, 3: 64.0}, {0: 58.0, 1: 61.0, 2: 59.5, 3: 60.0}
    result = difference(scores, rival)
    expected = stats.ttest_rel(list(scores.values()), list(rival.values())).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx((expected.low, expected.high))
    assert result.mean == pytest.approx(2.5)
    assert result.pairs == 4


def test_only_common_seeds_are_paired():
    result = difference({0: 1.0, 1: 5.0, 7: 100.0}, {0: 0.0, 1: 3.0, 9: 0.0})
    assert result.pairs == 2
    assert result.mean == pytest.approx(1.5)


def test_one_seed_gives_an_unbounded_interval():
    result = difference({0: 90.0}, {0: 10.0})
    assert (result.low, result.high) == (-math.inf, math.inf)
    assert not result.clear
    assert math.isnan(mean_and_std([1.0])[1])


def test_equal_differences_give_no_clear_difference():
    """Two more right answers of 360 with either seed: in percent the differences are not equal to the last bit."""
    result = difference({0: 100 * 202 / 360, 1: 100 * 203 / 360}, {0: 100 * 200 / 360, 1: 100 * 201 / 360})
    assert result.mean == pytest.approx(100 * 2 / 360)
    assert not result.clear


def test_methods_are_compared_at_common_seeds():
    result = common({"a": {0: 80.0, 1: 20.0}, "b": {1: 30.0, 2: 90.0}})
    assert result == {"a": {1: 20.0}, "b": {1: 30.0}}


def test_a_large_lead_is_clear():
    scores = {"a": {0: 50.0, 1: 51.0, 2: 50.5}, "b": {0: 60.0, 1: 61.2, 2: 60.4}, "c": {0: 40.0, 1: 41.1, 2: 40.6}}
    result = verdict(scores)
    assert (result.leader, result.clear) == ("b", True)


def test_methods_that_are_not_clearly_behind_are_tied():
    scores = {"a": {0: 50.0, 1: 55.0, 2: 52.0}, "b": {0: 53.0, 1: 52.0, 2: 54.0}, "c": {0: 10.0, 1: 11.0, 2: 10.5}}
    result = verdict(scores)
    assert (result.leader, result.tied) == ("b", ("a",))


def test_more_rivals_widen_the_intervals():
    """A lead that is clear against one rival need not be against ten."""
    lead, rest = {0: 10.0, 1: 11.0, 2: 12.0}, {0: 8.7, 1: 9.9, 2: 10.2}
    assert verdict({"a": lead, "b": rest}).clear
    assert not verdict({"a": lead, **{f"b{i}": rest for i in range(20)}}).clear


@pytest.mark.parametrize("methods", [3, 5])
def test_a_lead_among_equal_methods_is_claimed_in_less_than_five_percent(methods: int) -> None:
    """Over any other. The data pick the leader: corrected for its own comparisons alone it would be 7 to 11 %."""
    rng, trials, seeds = np.random.default_rng(0), 600, 4
    values = rng.normal(size=(trials, methods, seeds))
    results = [verdict({str(m): dict(enumerate(row)) for m, row in enumerate(trial)}) for trial in values]
    claimed = sum(len(result.tied) < methods - 1 for result in results)
    assert 0 < claimed / trials < 0.05
