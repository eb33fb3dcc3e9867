"""Accuracy: curves, the table of results, paired differences."""

from __future__ import annotations

from functools import partial

import pandas as pd

from unskew.reports import plot_frames
from unskew.reports.cost_notes import scores_of, time_caveat
from unskew.reports.figures import interval_plots, round_curves
from unskew.reports.figures.figure_layout import line_styles
from unskew.reports.group_runs import Setting
from unskew.reports.report_panel import TEST_NOT_USED, FigureRenderer, ReportPanel
from unskew.reports.results_table import results_table
from unskew.results.finding import METRICS
from unskew.results.format_numbers import listed
from unskew.results.learning import majority_sentence
from unskew.results.statistics import difference


def curves(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Accuracy by round."""
    frame, colours = plot_frames.accuracy(setting), line_styles([entry.label for entry in setting.entries])
    several = any(len(entry.runs) > 1 for entry in setting.entries)
    band = "Line: mean over seeds; band: lowest to highest seed." if several else "One seed only, so no band is shown."
    notes = [TEST_NOT_USED] if setting.rounds_selected else []
    drawing = renderer.draw(
        partial(round_curves.accuracy_curves, frame, colours),
        f"Test accuracy by round for {listed(list(colours))}",
        f"{band} Grey: {setting.baseline.label}." + ("" if setting.rounds_selected else _highest(frame)),
        wide=True,
    )
    return ReportPanel(setting.name, [drawing], notes)


def _highest(frame: plot_frames.Frame) -> str:
    top = frame.iloc[int(frame["value"].to_numpy().argmax())]  # the first of equals, as in a run's summary
    return (
        f" The highest single value is {top['value']:.1f} %, by {top['method']} in round {top['round']} "
        f"(seed {top['seed']})."
    )


def table(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Results by method."""
    table = results_table(setting)
    notes = [
        "Mean ± sample standard deviation over seeds; the best mean of each column is bold. Bytes and time are per run."
    ]
    notes += [text for text in [majority_sentence(run for entry in setting.entries for run in entry.runs)] if text]
    if "speed-up" in table.columns:
        notes.append(
            "Speed-up: the first round in which FedAvg reaches its best accuracy, divided by the first round in which "
            "the method reaches it, with the same seed."
        )
    if table.flagged:
        notes.append("†: FedAvg's best was not reached with every seed; the factor is that of the others.")
    if time_caveat(setting):
        notes.append("The times of these methods are not comparable; see Time.")
    notes += setting.notes
    return ReportPanel(setting.name, notes=notes, table=table)


def paired(setting: Setting, renderer: FigureRenderer) -> ReportPanel:
    """Paired differences from the baseline."""
    scores, baseline = scores_of(setting, renderer.metric), setting.baseline.label
    others = [entry.label for entry in setting.entries[1:]]
    if not others:
        return ReportPanel(setting.name, notes=["Only one method, so there is nothing to compare."])
    differences = {name: difference(scores[name], scores[baseline]) for name in others}
    rows = [{"method": name} | vars(gap) for name, gap in differences.items() if gap.pairs]
    panel = ReportPanel(setting.name)
    if unpaired := [name for name, gap in differences.items() if not gap.pairs]:
        panel.notes.append(f"No seed in common with {baseline}: {listed(unpaired)}.")
    if rows:
        one_seed = " A dot without a line: only one common seed." if any(r["pairs"] < 2 for r in rows) else ""
        drawing = renderer.draw(
            partial(interval_plots.forest, pd.DataFrame(rows), baseline, line_styles([baseline, *others])),
            f"Paired differences of {listed(others)} from {baseline}, with 95 % intervals",
            f"{METRICS[renderer.metric].capitalize()}: mean difference with its 95 % Student t interval, not corrected "
            f"for multiple comparisons. If an interval includes zero, the difference may be chance.{one_seed}",
            wide=True,
        )
        panel.drawings.append(drawing)
    return panel
