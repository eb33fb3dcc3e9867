"""The finding in words: who is ahead, by how much, and whether the seeds allow to say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from unskew.results.format_numbers import listed, points
from unskew.results.statistics import CONFIDENCE, Difference, Scores, common, difference, mean_and_std, verdict

REFERENCE = "fedavg"  # what others are measured against, where it is there
METRICS = {
    "mean_last10": "mean of the last ten rounds",
    "best": "best round",
    "final": "last round",
    "selected": "test accuracy in the round that validation chose",
}


@dataclass(frozen=True)
class Finding:
    """A headline and what stands behind it."""

    headline: str
    detail: str


def finding(scores: Mapping[str, Scores], metric: str) -> Finding:
    """Three honest cases: a clear leader, none, or one seed, which cannot tell."""
    if len(scores) == 1:
        return _alone(next(iter(scores)), next(iter(scores.values())), metric)
    scores = common(scores)
    if not next(iter(scores.values())):
        return Finding(
            "Nothing can be said: the methods have no seed in common.",
            f"Run {listed(list(scores))} with the same seeds; only then do they see the same split and clients.",
        )
    found = verdict(scores)
    lead, mean = found.leader, fmean(scores[found.leader].values())
    rivals = sorted((name for name in scores if name != lead), key=lambda name: -fmean(scores[name].values()))
    share = 1 - (1 - CONFIDENCE) / len(rivals)
    gaps = {name: difference(scores[lead], scores[name], share) for name in rivals}
    reached = f"{lead} reaches {mean:.1f} % ({METRICS[metric]})"
    if gaps[rivals[0]].pairs < 2:
        return _one_seed(lead, reached, rivals[0], gaps[rivals[0]].mean)
    if found.clear:
        least = min(rivals, key=lambda name: gaps[name].low)
        also = "" if least == rivals[0] else f"; over {least} it is at least {points(gaps[least].low)}"
        return Finding(
            f"{lead} is clearly ahead, by {gaps[rivals[0]].mean:.1f} points.",
            f"{reached}; {_lead(rivals[0], gaps[rivals[0]])}{also}{_shared(len(rivals))}.",
        )
    behind = [name for name in rivals if name not in found.level]
    clearly = f" It is clearly ahead of {listed(behind)} only." if behind else ""
    simple = f"; until then {REFERENCE}, the simplest, is not ruled out" if REFERENCE in found.level else ""
    level = sorted(found.level, key=lambda name: -fmean(scores[name].values()))
    return Finding(
        f"No clear winner: {lead} has the highest mean, but {listed(level)} may be as good.",
        f"{reached}; {_lead(level[0], gaps[level[0]])}{_shared(len(rivals))}.{clearly} "
        f"More seeds would narrow the intervals{simple}.",
    )


def _alone(name: str, scores: Scores, metric: str) -> Finding:
    mean, std = mean_and_std(list(scores.values()))
    seeds = "one seed" if len(scores) == 1 else f"{len(scores)} seeds, standard deviation {std:.1f}"
    return Finding(
        f"{name} reaches {mean:.1f} %.",
        f"{METRICS[metric].capitalize()}, {seeds}. There is no other method here to compare it with.",
    )


def _one_seed(lead: str, reached: str, rival: str, gap: float) -> Finding:
    margin = f"{lead} is highest, {gap:.1f} points above {rival}" if gap >= 0.05 else f"{lead} and {rival} are level"
    return Finding(
        f"One seed cannot tell: {margin}.",
        f"{reached}. With a single common seed the margin may be the method or luck; repeat with at least three seeds "
        "(seed=0, seed=1, seed=2) before choosing.",
    )


def _interval(gap: Difference) -> str:
    if gap.low < -100 and gap.high > 100:
        return "with an interval wider than the scale"
    return f"interval {points(gap.low)} to {points(gap.high)}"


def _lead(rival: str, gap: Difference) -> str:
    return f"its paired lead over {rival} is {points(gap.mean)} points, {_interval(gap)} over {gap.pairs} seeds"


def _shared(rivals: int) -> str:
    return f" (95 % shared over {rivals} comparisons)" if rivals > 1 else " (95 % interval)"
