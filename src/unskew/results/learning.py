"""Whether the models of runs have learnt anything: a comparison of models that have not says nothing about methods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from unskew.results.finding import Finding
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun

ONE_CLASS = 0.99  # share of the predictions from which a model counts as collapsed to one class


def majority_rate(run: LoadedRun) -> float:
    """Accuracy in percent of always predicting the largest class of the test set; NaN in runs of older versions."""
    rows, largest = run.test_set
    return 100 * largest / rows if rows else math.nan


def has_collapsed(run: LoadedRun) -> bool:
    """Whether the final model predicts a single class."""
    rows = run.metrics
    rows = rows[(rows["who"] == "server") & (rows["split"] == "test") & rows["metric"].str.contains("predicted/")]
    last = rows[rows["round"] == rows["round"].max()]
    end = last[last["metric"].str.startswith("end of run ")]
    counts = (end if len(end) else last)["value"]
    return bool(len(counts)) and counts.max() >= ONE_CLASS * counts.sum()


def has_learnt(run: LoadedRun) -> bool:
    """Whether any round is better than the largest class alone, by more than two standard errors."""
    rate, rows = majority_rate(run) / 100, run.test_set[0]
    if not rows:
        return True
    return run.summary.best / 100 > rate + 2 * math.sqrt(rate * (1 - rate) / rows)


def flag_unlearnt(finding: Finding, runs: Mapping[str, Sequence[LoadedRun]]) -> Finding:
    """The finding, or that no model has learnt; methods whose models have not are named. runs: by method."""
    failed = {name: [run for run in several if has_collapsed(run) or not has_learnt(run)]
              for name, several in runs.items()}  # fmt: skip
    none = [name for name, bad in failed.items() if bad and len(bad) == len(runs[name])]
    if none and len(none) == len(runs):
        return Finding(
            "No model has learnt.",
            f"{_reason(bad for several in failed.values() for bad in several)} Differences between the methods mean "
            "nothing here, and more seeds would not help: train longer, or change local.lr, before comparing.",
        )
    if not none:
        return finding
    reason = _reason(run for name in none for run in failed[name])
    return Finding(finding.headline, f"{finding.detail} {listed(none)} did not learn: {reason[0].lower()}{reason[1:]}")


def majority_sentence(runs: Iterable[LoadedRun]) -> str:
    """A sentence with the accuracy of always predicting the largest class; empty for runs of older versions."""
    rates = sorted({round(rate, 1) for run in runs if not math.isnan(rate := majority_rate(run))})
    if not rates:
        return ""
    ends = dict.fromkeys((rates[0], rates[-1]))
    return f"Always predicting the largest class gives {' to '.join(f'{rate:.1f}' for rate in ends)} %."


def _reason(runs: Iterable[LoadedRun]) -> str:
    several = list(runs)
    if all(has_collapsed(run) for run in several):
        return "The final models predict a single class."
    rate = max((rate for run in several if not math.isnan(rate := majority_rate(run))), default=math.nan)
    others = ", and some models predict a single class" if any(has_collapsed(run) for run in several) else ""
    return f"No accuracy is clearly above {rate:.1f} %, which the largest class alone gives{others}."
