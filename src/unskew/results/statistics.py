"""Statistics over a few seeds: means, spreads, paired differences with intervals, and the leading method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from statistics import fmean, stdev

from scipy.stats import t as student

CONFIDENCE = 0.95
ROUNDING = 1e-9  # equal differences of accuracies may differ by this much
Scores = Mapping[int, float]  # seed -> accuracy


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences and its Student interval, unbounded for fewer than two pairs or equal differences.

    Equal differences come from coarse test sets and few seeds; an interval without width would claim certainty.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; nan without enough values.

    >>> mean_and_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if not values:
        return math.nan, math.nan
    return fmean(values), stdev(values) if len(values) > 1 else math.nan


def difference(scores: Scores, rival: Scores, confidence: float = CONFIDENCE) -> Difference:
    """Paired over common seeds, because the same seed means the same split, clients and batches.

    >>> difference({0: 3.0, 1: 5.0}, {0: 1.0, 1: 2.0}).mean
    2.5
    """
    pairs = [scores[seed] - rival[seed] for seed in sorted(scores.keys() & rival.keys())]
    mean, spread = mean_and_std(pairs)
    if len(pairs) < 2 or spread < ROUNDING:
        return Difference(mean, -math.inf, math.inf, len(pairs))
    half = float(student.ppf((1 + confidence) / 2, len(pairs) - 1)) * spread / math.sqrt(len(pairs))
    return Difference(mean, mean - half, mean + half, len(pairs))


@dataclass(frozen=True)
class Leader:
    """The method with the highest mean, and the methods it is not clearly ahead of."""

    leader: str
    tied: tuple[str, ...]

    @property
    def clear(self) -> bool:
        return not self.tied


def shared_confidence(methods: int) -> float:
    """The confidence of one comparison with the leader.

    The data choose the leader, so that any pair could have been compared: 5 % is shared over all pairs. Over the
    leader's own comparisons alone, a clear lead would be claimed in 7 to 11 % of the cases in which all are equal.

    >>> [round(shared_confidence(methods), 4) for methods in (2, 3, 4)]
    [0.95, 0.9833, 0.9917]
    """
    return 1 - (1 - CONFIDENCE) / max(comb(methods, 2), 1)


def common(scores: Mapping[str, Scores]) -> dict[str, dict[int, float]]:
    """The scores at the seeds that all methods have."""
    seeds = set.intersection(*(set(each) for each in scores.values()))
    return {name: {seed: each[seed] for seed in sorted(seeds)} for name, each in scores.items()}


def verdict(scores: Mapping[str, Scores]) -> Leader:
    """Compare the leader with every other method, Bonferroni-corrected for all pairs of methods.

    All methods must have the same seeds: a mean over easier seeds would lead unfairly (see `common`).
    """
    leader = max(scores, key=lambda name: mean_and_std(list(scores[name].values()))[0])
    others, confidence = [name for name in scores if name != leader], shared_confidence(len(scores))
    tied = [name for name in others if not difference(scores[leader], scores[name], confidence).clear]
    return Leader(leader, tuple(tied))
