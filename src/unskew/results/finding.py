"""The finding in words: which method leads, by how much, and whether the seeds support it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from statistics import fmean

from unskew.results.format_numbers import listed, points
from unskew.results.statistics import (
    ROUNDING,
    Difference,
    Scores,
    common,
    difference,
    mean_and_std,
    shared_confidence,
    verdict,
)

BASELINE = "fedavg"
METRICS = {
    "mean_last10": "mean of the last ten rounds",
    "clients_mean": "mean over clients",
    "worst_tenth": "worst tenth of the clients",
    "best": "best round",
    "final": "last round",
    "selected": "test accuracy in the round that validation chose",
}


@dataclass(frozen=True)
class Finding:
    """A headline and the numbers behind it."""

    headline: str
    detail: str


def finding(scores: Mapping[str, Scores], metric: str) -> Finding:
    """One of three findings: a clear leader, no clear leader, or a single seed, which supports neither."""
    if len(scores) == 1:
        return _single_method(next(iter(scores)), next(iter(scores.values())), metric)
    scores = common(scores)
    if not next(iter(scores.values())):
        return Finding(
            "No comparison is possible: the methods have no seed in common.",
            f"Run {listed(list(scores))} with the same seeds, so that they see the same split and clients.",
        )
    result = verdict(scores)
    lead, mean = result.leader, fmean(scores[result.leader].values())
    rivals = sorted((name for name in scores if name != lead), key=lambda name: -fmean(scores[name].values()))
    share = shared_confidence(len(scores))
    gaps = {name: difference(scores[lead], scores[name], share) for name in rivals}
    if all(abs(scores[lead][seed] - scores[name][seed]) < ROUNDING for name in rivals for seed in scores[lead]):
        return _all_equal(lead, rivals, mean, metric, len(scores[lead]))
    reached = f"{lead} reaches {mean:.1f} % ({METRICS[metric]})"
    if gaps[rivals[0]].pairs < 2:
        return _one_seed(lead, reached, rivals[0], gaps[rivals[0]].mean)
    if result.clear:
        least = min(rivals, key=lambda name: gaps[name].low)
        also = "" if least == rivals[0] else f"; over {least} it is at least {points(gaps[least].low)}"
        return Finding(
            f"{lead} is clearly ahead, by {gaps[rivals[0]].mean:.1f} points.",
            f"{reached}; {_lead(rivals[0], gaps[rivals[0]])}{also}{_correction(len(scores))}.",
        )
    behind = [name for name in rivals if name not in result.tied]
    clearly = f" It is clearly ahead of {listed(behind)} only." if behind else ""
    simple = f"; until then {BASELINE}, the simplest, is not ruled out" if BASELINE in result.tied else ""
    tied = sorted(result.tied, key=lambda name: -fmean(scores[name].values()))
    return Finding(
        f"No clear winner: {lead} has the highest mean, but {listed(tied)} may be as good.",
        f"{reached}; {_lead(tied[0], gaps[tied[0]])}{_correction(len(scores))}.{clearly} "
        f"More seeds would narrow the intervals{simple}.",
    )


def _single_method(name: str, scores: Scores, metric: str) -> Finding:
    mean, std = mean_and_std(list(scores.values()))
    seeds = "one seed" if len(scores) == 1 else f"{len(scores)} seeds, standard deviation {std:.1f}"
    return Finding(
        f"{name} reaches {mean:.1f} %.",
        f"{METRICS[metric].capitalize()}, {seeds}. There is no other method to compare it with.",
    )


def _one_seed(lead: str, reached: str, rival: str, gap: float) -> Finding:
    margin = f"{lead} is highest, {gap:.1f} points above {rival}" if gap >= 0.05 else f"{lead} and {rival} are level"
    return Finding(
        f"One seed is not enough: {margin}.",
        f"{reached}. With a single common seed the margin may be chance; repeat with at least three seeds "
        "(seed=0, seed=1, seed=2) before choosing.",
    )


def _interval(gap: Difference) -> str:
    if gap.low < -100 and gap.high > 100:
        return "with an interval wider than the scale"
    return f"interval {points(gap.low)} to {points(gap.high)}"


def _lead(rival: str, gap: Difference) -> str:
    return f"its paired lead over {rival} is {points(gap.mean)} points, {_interval(gap)} over {gap.pairs} seeds"


def _correction(methods: int) -> str:
    pairs = comb(methods, 2)
    return f" (95 %, Bonferroni-corrected for {pairs} pairs of methods)" if pairs > 1 else " (95 % interval)"


def _all_equal(lead: str, rivals: list[str], mean: float, metric: str, seeds: int) -> Finding:
    several = f"with each of {seeds} seeds" if seeds > 1 else "with the only common seed"
    return Finding(
        f"No difference: {listed([lead, *rivals])} have the same accuracy {several}.",
        f"{mean:.1f} % ({METRICS[metric]}). Equal numbers to the last digit mean that the methods did the same, or "
        "that no model has learnt; more seeds would not separate them.",
    )
