"""What a method costs, in words, and whether times may be compared at all."""

from __future__ import annotations

from statistics import fmean

from unskew.report.group_runs import MethodRuns, Setting
from unskew.report.plot_frames import round_times, unsteadiness
from unskew.results.format_numbers import listed
from unskew.results.statistics import Scores

NOTABLE = 1.2  # a cost below this multiple is not worth a word
STEADY = 1.5  # seeds of one method whose times differ by more say more about the machine than about the method


def scores_of(setting: Setting, metric: str) -> dict[str, Scores]:
    """label -> seed -> accuracy."""
    return {entry.label: entry.scores[metric] for entry in setting.entries}


def costs(setting: Setting) -> str:
    """Bytes and seconds as multiples of the reference's, where they differ enough to matter."""
    if len(setting.entries) == 1:
        return ""
    reference, said, doubt = setting.reference, [], time_doubt(setting)
    seconds = round_times(setting).groupby("method")["seconds"].median()
    for entry in setting.entries[1:]:
        parts = [_multiple(_bytes_of_round(entry), _bytes_of_round(reference), "the bytes")]
        if not doubt:
            parts.insert(0, _multiple(seconds[entry.label], seconds[reference.label], "the time of a round"))
        if any(parts):
            said.append(f"{entry.label} costs {listed([part for part in parts if part])}")
    same = "All methods send about the same." if doubt else "All methods cost about the same."
    told = f"Against {reference.label}, {'; '.join(said)}." if said else same
    return f"{told} {doubt}".strip()


def time_doubt(setting: Setting) -> str:
    """Why times cannot be compared, or nothing."""
    runs = [run for entry in setting.entries for run in entry.runs]
    places = {tuple(run.environment.get(key) for key in ("device", "engine", "workers")) for run in runs}
    if len(places) > 1:
        return "Times come from different machines or engines and are not compared."
    ratio = unsteadiness(setting)
    if ratio > STEADY:
        return (
            f"Times are not compared: with one method alone, a round took up to {ratio:.1f}× as long with one seed as "
            "with another, as on a busy machine."
        )
    return ""


def _multiple(value: float, base: float, what: str) -> str:
    ratio = value / base if base else 1.0
    if 1 / NOTABLE < ratio < NOTABLE:
        return ""
    return f"{ratio:.1f}× {what}" if ratio >= 0.1 else f"{ratio:.2g}× {what}"


def _bytes_of_round(entry: MethodRuns) -> float:
    """A run that stopped early sent less, but not by its method's merit."""
    return (_mean(entry, "bytes_up") + _mean(entry, "bytes_down")) / max(_mean(entry, "last_round"), 1.0)


def _mean(entry: MethodRuns, cost: str) -> float:
    return fmean(float(getattr(run.summary, cost)) for run in entry.runs)
