"""ROC numbers against scikit-learn, ties, few non-members, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

import unskew as us
from unskew.audit.membership.roc import area, curve, roc, true_at


def _scores(members: int = 300, others: int = 2000, shift: float = 1.0, digits: int = 9) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return rng.normal(shift, 1, members).round(digits), rng.normal(0, 1, others).round(digits)


@pytest.mark.parametrize("digits", [9, 1, 0])  # the last two tie a lot
def test_curve_and_area_are_scikit_learns(digits: int) -> None:
    inside, outside = _scores(digits=digits)
    labels, scores = np.repeat([1, 0], [len(inside), len(outside)]), np.concatenate([inside, outside])
    false, true = curve(inside, outside)
    want_false, want_true, _ = roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(false, want_false)
    np.testing.assert_allclose(true, want_true)
    assert area(false, true) == pytest.approx(roc_auc_score(labels, scores))


def test_the_rate_at_few_false_positives_is_that_of_a_real_threshold() -> None:
    inside, outside = _scores()
    threshold = np.sort(outside)[::-1][20]  # exactly 20 of 2000 lie above
    assert true_at(*curve(inside, outside), 0.01) == pytest.approx(np.mean(inside > threshold), abs=1 / 300)
    assert true_at(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.9, 1.0]), 0.4) == 0.0  # nothing in between is claimed


@pytest.mark.parametrize(("rate", "others", "allowed"), [(0.001, 1000, 1), (0.01, 100, 1), (0.01, 300, 3)])
def test_exactly_as_many_false_positives_as_the_rate_says_are_allowed(rate: float, others: int, allowed: int) -> None:
    """Members and non-members take turns from the highest score down, so each false positive finds one more member.

    Before the first false positive one of eight members is found, with k of them 1 + k; the rest of the non-members
    are below all members. One non-member fewer, and k false positives are more than the rate.
    """
    inside = np.arange(8, 0, -1.0)
    outside = np.concatenate([inside - 0.5, np.zeros(others - 8)])
    false, true = curve(inside, outside)
    assert true_at(false, true, rate) == (1 + allowed) / 8
    assert true_at(*curve(inside, outside[:-1]), rate) == allowed / 8
    assert true_at(*curve(inside, np.append(outside, 0.0)), rate) == (1 + allowed) / 8
    at_rate = next(each for each in roc(inside, outside, draws=2).rates if each.false_rate == rate)
    assert at_rate.found.value == 100 * (1 + allowed) / 8
    assert at_rate.resolved


def test_a_rate_that_arithmetic_made_a_hair_too_small_still_counts() -> None:
    """1 - 0.9 is 0.09999999999999998: one of ten non-members is within it."""
    inside, outside = np.array([3.0, 1.0]), np.array([2.0, *np.zeros(9)])
    assert true_at(*curve(inside, outside), 1 - 0.9) == 1.0


def test_scores_that_say_nothing_are_worth_half() -> None:
    found = roc(np.zeros(40), np.zeros(60))
    assert found.auc.value == 0.5
    assert found.rates[1].found.value == 0.0


def test_perfect_scores_find_everybody() -> None:
    found = roc(np.ones(40), np.zeros(60))
    assert (found.auc.value, found.auc.low, found.auc.high) == (1, 1, 1)
    assert found.rates[0].found.value == 100


def test_too_few_non_members_for_a_tenth_of_a_percent_are_said_to_be_so() -> None:
    few, many = roc(*_scores(others=999), draws=20), roc(*_scores(others=1000), draws=20)
    assert [rate.resolved for rate in few.rates] == [False, True]
    assert [rate.resolved for rate in many.rates] == [True, True]
    assert "999 non-members are too few to tell 0.1 %, which takes 1000" in few.rates[0].words
    assert "at 0.1 % false positives" in many.rates[0].words


def test_the_interval_covers_the_true_area_about_as_often_as_it_says() -> None:
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found = roc(rng.normal(1, 1, 60), rng.normal(0, 1, 60), draws=200, seed=seed).auc
        assert found.low <= found.value <= found.high
        hits += found.low <= 0.7602 <= found.high  # Phi(1 / sqrt(2))
    assert hits >= 34


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(us.UserError, match="non-members, found 2 of which 1 are finite"):
        roc(np.array([1.0]), np.array([1.0, np.nan]))
