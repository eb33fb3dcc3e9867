"""The cost of each method as a sentence, and whether times can be compared at all."""

from __future__ import annotations

from statistics import fmean

from unskew.reports.group_runs import MethodRuns, Setting
from unskew.reports.plot_frames import round_times, time_ratio
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun
from unskew.results.statistics import Scores

NOTABLE_RATIO = 1.2  # smaller cost ratios are not mentioned
STEADY_RATIO = 1.5  # if seeds of one method differ by more, times reflect the machine rather than the method


def runs_of(setting: Setting) -> dict[str, tuple[LoadedRun, ...]]:
    """The runs by label."""
    return {entry.label: entry.runs for entry in setting.entries}


def scores_of(setting: Setting, metric: str) -> dict[str, Scores]:
    """label -> seed -> accuracy."""
    return {entry.label: entry.scores[metric] for entry in setting.entries}


def cost_sentence(setting: Setting) -> str:
    """Bytes and seconds relative to the baseline, where they differ notably."""
    if len(setting.entries) == 1:
        return ""
    baseline, costs, caveat = setting.baseline, [], time_caveat(setting)
    seconds = round_times(setting).groupby("method")["seconds"].median()
    for entry in setting.entries[1:]:
        parts = [_ratio(_bytes_per_round(entry), _bytes_per_round(baseline), "the bytes")]
        if not caveat:
            parts.insert(0, _ratio(seconds[entry.label], seconds[baseline.label], "the time"))
        if any(parts):
            costs.append(f"{entry.label} needs {listed([part for part in parts if part])}")
    same = "All methods send about the same number of bytes." if caveat else "All methods cost about the same."
    sentence = f"Per round, compared with {baseline.label}: {'; '.join(costs)}." if costs else same
    return f"{sentence} {caveat}".strip()


def time_caveat(setting: Setting) -> str:
    """Why times cannot be compared; empty if they can."""
    runs = [run for entry in setting.entries for run in entry.runs]
    environments = {tuple(run.environment.get(key) for key in ("device", "engine", "workers")) for run in runs}
    if len(environments) > 1:
        return "Times are not compared, because they were measured on different machines or engines."
    ratio = time_ratio(setting)
    if ratio > STEADY_RATIO:
        return (
            f"Times are not compared, because rounds of the same method took up to {ratio:.1f}× as long with one seed "
            "as with another, as happens on a busy machine."
        )
    return ""


def _ratio(value: float, base: float, unit: str) -> str:
    ratio = value / base if base else 1.0
    if 1 / NOTABLE_RATIO < ratio < NOTABLE_RATIO:
        return ""
    return f"{ratio:.1f}× {unit}" if ratio >= 0.1 else f"{ratio:.2g}× {unit}"


def _bytes_per_round(entry: MethodRuns) -> float:
    """Per round, because a run that stopped early sends fewer bytes whatever its method."""
    return (_mean(entry, "bytes_up") + _mean(entry, "bytes_down")) / max(_mean(entry, "last_round"), 1.0)


def _mean(entry: MethodRuns, cost: str) -> float:
    return fmean(float(getattr(run.summary, cost)) for run in entry.runs)
