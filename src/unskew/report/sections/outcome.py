"""Who got how far: curves, the table, paired differences."""

from __future__ import annotations

from functools import partial

import pandas as pd

from unskew.report import frames
from unskew.report.figures import lines, spread
from unskew.report.figures.sheet import marks
from unskew.report.panel import NOT_USED, Panel, Studio
from unskew.report.settings import Setting
from unskew.report.table import results
from unskew.report.words import scores_of, time_doubt
from unskew.results.finding import METRICS
from unskew.results.statistics import difference
from unskew.results.units import listed


def curves(setting: Setting, studio: Studio) -> Panel:
    """Accuracy by round."""
    frame, colours = frames.accuracy(setting), marks([entry.label for entry in setting.entries])
    several = any(len(entry.runs) > 1 for entry in setting.entries)
    band = "Line: mean over seeds; band: from the lowest to the highest seed." if several else "One seed, so no band."
    notes = [NOT_USED] if setting.selected else []
    drawing = studio.draw(
        partial(lines.accuracy_curves, frame, colours),
        f"Test accuracy by round for {listed(list(colours))}",
        f"{band} Grey is {setting.reference.label}." + ("" if setting.selected else _highest(frame)),
        wide=True,
    )
    return Panel(setting.name, [drawing], notes)


def _highest(frame: frames.Frame) -> str:
    top = frame.iloc[int(frame["value"].to_numpy().argmax())]  # the first of equals, as in a run's summary
    where = f"{top['method']} in round {top['round']} (seed {top['seed']})"
    return f" The highest single value is {top['value']:.1f} %, {where}."


def table(setting: Setting, studio: Studio) -> Panel:
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
    return Panel(setting.name, notes=notes, table=found)


def paired(setting: Setting, studio: Studio) -> Panel:
    """Differences to the reference."""
    scores, reference = scores_of(setting, studio.metric), setting.reference.label
    others = [entry.label for entry in setting.entries[1:]]
    if not others:
        return Panel(setting.name, notes=["One method only: nothing to compare."])
    found = {name: difference(scores[name], scores[reference]) for name in others}
    rows = [{"method": name} | vars(gap) for name, gap in found.items() if gap.pairs]
    panel = Panel(setting.name)
    if unpaired := [name for name, gap in found.items() if not gap.pairs]:
        panel.notes.append(f"No seed in common with {reference}: {listed(unpaired)}.")
    if rows:
        alone = " A dot alone has one common seed, and so no interval." if any(r["pairs"] < 2 for r in rows) else ""
        drawing = studio.draw(
            partial(spread.forest, pd.DataFrame(rows), reference, marks([reference, *others])),
            f"Paired differences of {listed(others)} to {reference}, with 95 % intervals",
            f"A line that crosses zero may be chance. {METRICS[studio.metric].capitalize()}: mean difference and its "
            f"95 % Student interval, each on its own.{alone}",
            wide=True,
        )
        panel.drawings.append(drawing)
    return panel
