"""How well scores separate members from non-members: ROC, AUC, and TPR at low FPR, with bootstrap intervals.

An attack with a good average may be sure of no row, and one that is sure of a few rows may be no better than chance on
average: hence the rates at 0.1 % and 1 % false positives. Results say so if there are too few non-members for a rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import UserError

Array = NDArray[np.float64]
FALSE_RATES = (0.001, 0.01)
ENOUGH = 10  # false positives that a rate must allow: with one, the interval holds the truth in 76 % of cases
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class TruePositiveRate:
    """Percent of the members that are found while at most `false_rate` of the non-members are taken for members."""

    false_rate: float
    tpr: Interval
    non_members: int

    @property
    def resolved(self) -> bool:
        """Whether there are enough non-members for ten false positives to be within the rate."""
        return self.non_members * self.false_rate >= ENOUGH - 1e-9

    @property
    def summary(self) -> str:
        """One line for users."""
        value = f"{self.tpr.value:.1f} % [{self.tpr.low:.1f}, {self.tpr.high:.1f}]"
        some = self.non_members * self.false_rate >= 1 - 1e-9
        where = f"at {100 * self.false_rate:g} % false positives" if some else "without a false positive"
        text = f"{value} of the members found {where}"
        if self.resolved:
            return text
        return (
            f"{text}, unresolved: {self.non_members:,} non-members are too few for {100 * self.false_rate:g} %, which "
            f"needs {round(ENOUGH / self.false_rate):,}"
        )


@dataclass(frozen=True, eq=False)
class Roc:
    """False and true positive rates [points] from (0, 0) to (1, 1), with AUC and rates derived from them."""

    false: Array
    true: Array
    members: int
    non_members: int
    auc: Interval
    rates: tuple[TruePositiveRate, ...]


def roc(members: Array, non_members: Array, draws: int = 500, seed: int = 0) -> Roc:
    """The ROC of scores that are higher for likely members; the bootstrap resamples members and others separately."""
    _check_scores(members, "members")
    _check_scores(non_members, "non-members")
    false, true = curve(members, non_members)
    rng = np.random.default_rng(seed)
    areas, rates_drawn = [], []
    for _ in range(draws):
        drawn = curve(rng.choice(members, len(members)), rng.choice(non_members, len(non_members)))
        areas.append(area(*drawn))
        rates_drawn.append([tpr_at(*drawn, rate) for rate in FALSE_RATES])
    auc = _interval(area(false, true), np.array(areas))
    rates = tuple(
        TruePositiveRate(
            rate, _interval(100 * tpr_at(false, true, rate), 100 * np.array(rates_drawn)[:, i]), len(non_members)
        )
        for i, rate in enumerate(FALSE_RATES)
    )
    return Roc(false, true, len(members), len(non_members), auc, rates)


def curve(members: Array, non_members: Array) -> tuple[Array, Array]:
    """False and true positive rates, one point per distinct score, so that ties favour neither side."""
    scores = np.concatenate([members, non_members])
    order = np.argsort(-scores, kind="stable")
    is_member = (order < len(members)).astype(float)
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    true, false = np.cumsum(is_member)[ends], np.cumsum(1 - is_member)[ends]
    return np.append(0.0, false / len(non_members)), np.append(0.0, true / len(members))


def area(false: Array, true: Array) -> float:
    """Area under the curve by the trapezoidal rule; 0.5 is guessing."""
    return float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))


def tpr_at(false: Array, true: Array, rate: float) -> float:
    """The highest true positive rate of a threshold whose false positive rate is at most `rate`; not interpolated."""
    return float(true[false <= rate + 1e-12].max())


def _interval(value: float, drawn: Array) -> Interval:
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high))


def _check_scores(scores: Array, group: str) -> None:
    if scores.ndim != 1 or not len(scores) or not np.isfinite(scores).all():
        raise UserError(
            f"membership: expected finite scores, at least one, of the {group}, found {len(scores)} of which "
            f"{int(np.isfinite(scores).sum())} are finite; a model that diverged cannot be attacked"
        )
