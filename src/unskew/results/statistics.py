"""What a handful of seeds allow one to say: means, spreads, paired differences with intervals, and who is ahead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student

CONFIDENCE = 0.95
ROUNDING = 1e-9  # differences of accuracies that are equal may differ by this much
Scores = Mapping[int, float]  # seed -> accuracy


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences and its Student interval, unbounded with fewer than two pairs or equal ones.

    Equal differences come from coarse test sets and few seeds; an interval without width would claim certainty.
    """

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def clear(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; nan where there is too little.

    >>> mean_and_std([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    if not values:
        return math.nan, math.nan
    return fmean(values), stdev(values) if len(values) > 1 else math.nan


def difference(ours: Scores, theirs: Scores, confidence: float = CONFIDENCE) -> Difference:
    """Paired over the seeds that both have: the same seed means the same split, clients and batches.

    >>> difference({0: 3.0, 1: 5.0}, {0: 1.0, 1: 2.0}).mean
    2.5
    """
    pairs = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
    mean, spread = mean_and_std(pairs)
    if len(pairs) < 2 or spread < ROUNDING:
        return Difference(mean, -math.inf, math.inf, len(pairs))
    half = float(student.ppf((1 + confidence) / 2, len(pairs) - 1)) * spread / math.sqrt(len(pairs))
    return Difference(mean, mean - half, mean + half, len(pairs))


@dataclass(frozen=True)
class Leader:
    """The method with the highest mean, and those that it is not clearly ahead of."""

    leader: str
    level: tuple[str, ...]

    @property
    def clear(self) -> bool:
        return not self.level


def common(scores: Mapping[str, Scores]) -> dict[str, dict[int, float]]:
    """The same scores at the seeds that all methods have."""
    seeds = set.intersection(*(set(each) for each in scores.values()))
    return {name: {seed: each[seed] for seed in sorted(seeds)} for name, each in scores.items()}


def verdict(scores: Mapping[str, Scores]) -> Leader:
    """Compare the leader with every other method, at a confidence shared out over the comparisons (Bonferroni).

    All methods must have the same seeds: a mean over easier seeds would lead for no merit (see `common`).
    """
    leader = max(scores, key=lambda name: mean_and_std(list(scores[name].values()))[0])
    others = [name for name in scores if name != leader]
    confidence = 1 - (1 - CONFIDENCE) / max(len(others), 1)
    level = [name for name in others if not difference(scores[leader], scores[name], confidence).clear]
    return Leader(leader, tuple(level))
