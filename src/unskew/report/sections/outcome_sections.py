"""Who got how far: curves, the table, paired differences."""

from __future__ import annotations

from functools import partial

import pandas as pd

from unskew.report import plot_frames
from unskew.report.cost_notes import scores_of, time_doubt
from unskew.report.figures import interval_plots, round_curves
from unskew.report.figures.figure_layout import marks
from unskew.report.group_runs import Setting
from unskew.report.report_panel import NOT_USED, FigureRenderer, ReportPanel
from unskew.report.results_table import results
from unskew.results.finding import METRICS
from unskew.results.format_numbers import listed
from unskew.results.statistics import difference


def curves(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Accuracy by round."""
    frame, colours = plot_frames.accuracy(setting), marks([entry.label for entry in setting.entries])
    several = any(len(entry.runs) > 1 for entry in setting.entries)
    band = "Line: mean over seeds; band: from the lowest to the highest seed." if several else "One seed, so no band."
    notes = [NOT_USED] if setting.selected else []
    drawing = studio.draw(
        partial(round_curves.accuracy_curves, frame, colours),
        f"Test accuracy by round for {listed(list(colours))}",
        f"{band} Grey is {setting.reference.label}." + ("" if setting.selected else _highest(frame)),
        wide=True,
    )
    return ReportPanel(setting.name, [drawing], notes)


def _highest(frame: plot_frames.Frame) -> str:
    top = frame.iloc[int(frame["value"].to_numpy().argmax())]  # the first of equals, as in a run's summary
    where = f"{top['method']} in round {top['round']} (seed {top['seed']})"
    return f" The highest single value is {top['value']:.1f} %, {where}."


def table(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Numbers by method."""
    found = results(setting)
    notes = [
        "Mean ± sample standard deviation over seeds, the best mean of a column in bold; bytes and time are those of a "
        "whole run."
    ]
    if "speed-up" in found.columns:
        notes.append(
            "Speed-up as in FedLMD: rounds of the run divided by the first round that reaches FedAvg's best accuracy "
            "with that seed."
        )
    if found.flagged:
        notes.append("† never reached it with some seed, which counts as 1.00× there, as in FedLMD.")
    if time_doubt(setting):
        notes.append("The times of these methods cannot be compared; see Time.")
    notes += setting.notes
    return ReportPanel(setting.name, notes=notes, table=found)


def paired(setting: Setting, studio: FigureRenderer) -> ReportPanel:
    """Differences to the reference."""
    scores, reference = scores_of(setting, studio.metric), setting.reference.label
    others = [entry.label for entry in setting.entries[1:]]
    if not others:
        return ReportPanel(setting.name, notes=["One method only: nothing to compare."])
    found = {name: difference(scores[name], scores[reference]) for name in others}
    rows = [{"method": name} | vars(gap) for name, gap in found.items() if gap.pairs]
    panel = ReportPanel(setting.name)
    if unpaired := [name for name, gap in found.items() if not gap.pairs]:
        panel.notes.append(f"No seed in common with {reference}: {listed(unpaired)}.")
    if rows:
        alone = " A dot alone has one common seed, and so no interval." if any(r["pairs"] < 2 for r in rows) else ""
        drawing = studio.draw(
            partial(interval_plots.forest, pd.DataFrame(rows), reference, marks([reference, *others])),
            f"Paired differences of {listed(others)} to {reference}, with 95 % intervals",
            f"A line that crosses zero may be chance. {METRICS[studio.metric].capitalize()}: mean difference and its "
            f"95 % Student interval, each on its own.{alone}",
            wide=True,
        )
        panel.drawings.append(drawing)
    return panel
