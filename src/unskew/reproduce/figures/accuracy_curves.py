"""Accuracy by round, a panel per setting: FedLMD's figures 4 and 6."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reproduce.figures.figure_style import (
    LineStyle,
    accuracy_axes,
    label_ends,
    marks,
    panels,
    same_height,
    styled,
)
from unskew.reproduce.figures.paper_figure import all_of, caption, check_some, missing, wanted
from unskew.reproduce.target_cells import FinishedCell
from unskew.results.run_tables import test_accuracy

COLUMNS = ["dataset", "method", "setting", "seed", "round", "accuracy"]
SMOOTH = 10  # rounds of a running mean: single rounds jump by ten points and more under strong skew


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """dataset, method, setting, seed, round, accuracy (test set, percent)."""
    tables = [
        test_accuracy(p.run.metrics).assign(
            dataset=p.run.config.data.name, method=p.method, setting=p.setting, seed=p.seed
        )
        for p in runs
    ]
    if not tables:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat(tables, ignore_index=True).round({"value": 2}).rename(columns={"value": "accuracy"})[COLUMNS]


@styled
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Thin lines for runs, thick ones for the mean over seeds and the last rounds."""
    check_some(frame, name)
    methods, settings = (all_of(w, frame[c]) for w, c in zip(wanted(name), ("method", "setting")))
    absent = missing(methods, settings, set(zip(frame["method"], frame["setting"])))
    shown = [s for s in settings if s in set(frame["setting"])]
    what = f"Thick: mean over seeds and the last {SMOOTH} rounds; thin: every run and round."
    size = (560.0, 320.0) if len(shown) == 1 else (320.0, 340.0)
    figure, places = panels(1, len(shown), size, title, caption(frame, what, absent, note))
    drawn = marks(methods)
    ends = [lines(axes, frame[frame["setting"] == s], methods, drawn) for axes, s in zip(places, shown)]
    same_height(places)
    for axes, setting, last in zip(places, shown, ends):
        accuracy_axes(axes, setting, "test accuracy, %", "communication round")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(axes, last, drawn, size[1])
    return figure


def lines(axes: Axes, frame: pd.DataFrame, methods: list[str], drawn: dict[str, LineStyle]) -> dict[str, float]:
    """The lines of one panel, and where they end; the wider a line, the further on top."""
    ends: dict[str, float] = {}
    axes.margins(x=0.0)
    pale = min(0.3, 1.2 / len(frame.groupby(["method", "seed"])))  # many thin lines would hide the thick ones
    for method in methods:
        rows, mark = frame[frame["method"] == method], drawn[method]
        if rows.empty:
            continue
        for seed, run in rows.groupby("seed"):
            thin = axes.plot(run["round"], run["accuracy"], color=mark.colour, linewidth=0.7, alpha=pale)
            thin[0].set_gid(f"run {method} {seed}")
        mean = rows.groupby("round")["accuracy"].mean().rolling(SMOOTH, min_periods=1).mean()
        thick = {"color": mark.colour, "linestyle": mark.dashes, "linewidth": mark.width}
        axes.plot(mean.index, mean, **thick, zorder=2 + mark.width, gid=f"line {method}")
        ends[method] = float(mean.iloc[-1])
    return ends
