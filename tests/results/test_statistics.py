"""Intervals and verdicts over seeds."""

import math

import pytest
from scipy import stats

from unskew.results.statistics import common, difference, mean_and_std, verdict


def test_a_paired_difference_is_scipys_interval():
    ours, theirs = {0: 61.0, 1: 63.5, 2: 60.0, 3: 64.0}, {0: 58.0, 1: 61.0, 2: 59.5, 3: 60.0}
    found = difference(ours, theirs)
    expected = stats.ttest_rel(list(ours.values()), list(theirs.values())).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx(2.5)
    assert found.pairs == 4


def test_only_seeds_that_both_have_are_paired():
    found = difference({0: 1.0, 1: 5.0, 7: 100.0}, {0: 0.0, 1: 3.0, 9: 0.0})
    assert found.pairs == 2
    assert found.mean == pytest.approx(1.5)


def test_one_seed_proves_nothing():
    found = difference({0: 90.0}, {0: 10.0})
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert not found.clear
    assert math.isnan(mean_and_std([1.0])[1])


def test_equal_differences_are_no_certainty():
    """Two more right answers of 360 with either seed: in percent the differences are not equal to the last bit."""
    found = difference({0: 100 * 202 / 360, 1: 100 * 203 / 360}, {0: 100 * 200 / 360, 1: 100 * 201 / 360})
    assert found.mean == pytest.approx(100 * 2 / 360)
    assert not found.clear


def test_methods_are_compared_at_the_seeds_that_all_have():
    found = common({"a": {0: 80.0, 1: 20.0}, "b": {1: 30.0, 2: 90.0}})
    assert found == {"a": {1: 20.0}, "b": {1: 30.0}}


def test_a_leader_far_ahead_is_a_clear_winner():
    scores = {"a": {0: 50.0, 1: 51.0, 2: 50.5}, "b": {0: 60.0, 1: 61.2, 2: 60.4}, "c": {0: 40.0, 1: 41.1, 2: 40.6}}
    found = verdict(scores)
    assert (found.leader, found.clear) == ("b", True)


def test_who_is_not_clearly_behind_is_named():
    scores = {"a": {0: 50.0, 1: 55.0, 2: 52.0}, "b": {0: 53.0, 1: 52.0, 2: 54.0}, "c": {0: 10.0, 1: 11.0, 2: 10.5}}
    found = verdict(scores)
    assert (found.leader, found.level) == ("b", ("a",))


def test_more_rivals_ask_for_more_evidence():
    """A lead that is clear against one rival need not be against ten."""
    lead, rest = {0: 10.0, 1: 11.0, 2: 12.0}, {0: 8.7, 1: 9.9, 2: 10.2}
    assert verdict({"a": lead, "b": rest}).clear
    assert not verdict({"a": lead, **{f"b{i}": rest for i in range(20)}}).clear
