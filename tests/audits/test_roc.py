"""ROC and AUC against scikit-learn, ties, few non-members, and coverage of the intervals."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve

import unskew as us
from unskew.audits.membership.roc import area, curve, roc, tpr_at


def _scores(members: int = 300, others: int = 2000, shift: float = 1.0, digits: int = 9) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return rng.normal(shift, 1, members).round(digits), rng.normal(0, 1, others).round(digits)


@pytest.mark.parametrize("digits", [9, 1, 0])  # the last two have many ties
def test_curve_and_area_match_scikit_learn(digits: int) -> None:
    members, non_members = _scores(digits=digits)
    labels, scores = np.repeat([1, 0], [len(members), len(non_members)]), np.concatenate([members, non_members])
    false, true = curve(members, non_members)
    want_false, want_true, _ = roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(false, want_false)
    np.testing.assert_allclose(true, want_true)
    assert area(false, true) == pytest.approx(roc_auc_score(labels, scores))


def test_the_tpr_at_low_fpr_is_that_of_an_actual_threshold() -> None:
    members, non_members = _scores()
    threshold = np.sort(non_members)[::-1][20]  # exactly 20 of 2000 are above
    assert tpr_at(*curve(members, non_members), 0.01) == pytest.approx(np.mean(members > threshold), abs=1 / 300)
    assert tpr_at(np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.9, 1.0]), 0.4) == 0.0  # not interpolated


@pytest.mark.parametrize(("rate", "others", "allowed"), [(0.001, 1000, 1), (0.01, 100, 1), (0.01, 300, 3)])
def test_exactly_as_many_false_positives_as_the_rate_says_are_allowed(rate: float, others: int, allowed: int) -> None:
    """Members and non-members alternate from the highest score down, so each false positive finds one more member.

    Before the first false positive one of eight members is found, after k of them 1 + k; the other non-members score
    below all members. With one non-member fewer, k false positives exceed the rate.
    """
    members = np.arange(8, 0, -1.0)
    non_members = np.concatenate([members - 0.5, np.zeros(others - 8)])
    false, true = curve(members, non_members)
    assert tpr_at(false, true, rate) == (1 + allowed) / 8
    assert tpr_at(*curve(members, non_members[:-1]), rate) == allowed / 8
    assert tpr_at(*curve(members, np.append(non_members, 0.0)), rate) == (1 + allowed) / 8
    at_rate = next(each for each in roc(members, non_members, draws=2).rates if each.false_rate == rate)
    assert at_rate.tpr.value == 100 * (1 + allowed) / 8
    assert not at_rate.resolved, "so few false positives do not resolve a rate"


def test_rounding_of_the_rate_does_not_exclude_a_false_positive() -> None:
    """1 - 0.9 is 0.09999999999999998, but one of ten non-members is still allowed."""
    members, non_members = np.array([3.0, 1.0]), np.array([2.0, *np.zeros(9)])
    assert tpr_at(*curve(members, non_members), 1 - 0.9) == 1.0


def test_constant_scores_have_an_auc_of_one_half() -> None:
    result = roc(np.zeros(40), np.zeros(60))
    assert result.auc.value == 0.5
    assert result.rates[1].tpr.value == 0.0


def test_perfect_scores_find_all_members() -> None:
    result = roc(np.ones(40), np.zeros(60))
    assert (result.auc.value, result.auc.low, result.auc.high) == (1, 1, 1)
    assert result.rates[0].tpr.value == 100


def test_too_few_non_members_for_a_tenth_of_a_percent_are_reported() -> None:
    few, some, many = (roc(*_scores(others=others), draws=20) for others in (999, 9_999, 10_000))
    assert [[rate.resolved for rate in each.rates] for each in (few, some, many)] == [
        [False, False], [False, True], [True, True],
    ]  # fmt: skip
    unresolved = "unresolved: 999 non-members are too few for 0.1 %, which needs 10,000"
    assert few.rates[0].summary.endswith(f"without a false positive, {unresolved}")
    assert "at 0.1 % false positives, unresolved: 9,999 non-members" in some.rates[0].summary
    assert many.rates[0].summary.endswith("at 0.1 % false positives")


def test_the_interval_covers_the_true_auc_at_about_its_nominal_rate() -> None:
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        result = roc(rng.normal(1, 1, 60), rng.normal(0, 1, 60), draws=200, seed=seed).auc
        assert result.low <= result.value <= result.high
        hits += result.low <= 0.7602 <= result.high  # Phi(1 / sqrt(2))
    assert hits >= 34


def test_scores_that_are_not_finite_are_refused() -> None:
    with pytest.raises(us.UserError, match="non-members, found 2 of which 1 are finite"):
        roc(np.array([1.0]), np.array([1.0, np.nan]))
