"""Accuracy by round, one panel per setting: FLea's figure 2, and FedLMD's figures 4 and 6."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reproductions.figures.figure_style import (
    LineStyle,
    accuracy_axes,
    label_ends,
    line_styles,
    panels,
    share_y_scale,
    with_figure_style,
)
from unskew.reproductions.figures.paper_figure import (
    caption,
    check_not_empty,
    in_recipe_order,
    missing_series,
    recipe_labels,
)
from unskew.reproductions.target_cells import FinishedCell
from unskew.results.run_tables import test_accuracy

COLUMNS = ["dataset", "method", "setting", "seed", "round", "accuracy"]
SMOOTH = 10  # rounds of the running mean: under strong skew single rounds jump by ten points and more


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """A row per run and round: dataset, method, setting, seed, round, test accuracy in percent."""
    tables = [
        test_accuracy(p.run.metrics).assign(
            dataset=p.run.config.data.name, method=p.method, setting=p.setting, seed=p.seed
        )
        for p in runs
    ]
    if not tables:
        return pd.DataFrame(columns=COLUMNS)
    return pd.concat(tables, ignore_index=True).round({"value": 2}).rename(columns={"value": "accuracy"})[COLUMNS]


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, note: str = "") -> Figure:
    """Thin lines for single runs, thick lines for the running mean over seeds."""
    check_not_empty(frame, name)
    methods, settings = (in_recipe_order(w, frame[c]) for w, c in zip(recipe_labels(name), ("method", "setting")))
    absent = missing_series(methods, settings, set(zip(frame["method"], frame["setting"])))
    shown = [s for s in settings if s in set(frame["setting"])]
    content = f"Thick: mean over seeds and the last {SMOOTH} rounds; thin: single runs."
    size = (560.0, 320.0) if len(shown) == 1 else (320.0, 340.0)
    figure, panel_axes = panels(1, len(shown), size, title, caption(frame, content, absent, note))
    styles = line_styles(methods)
    ends = [draw_lines(axes, frame[frame["setting"] == s], methods, styles) for axes, s in zip(panel_axes, shown)]
    share_y_scale(panel_axes)
    for axes, setting, last in zip(panel_axes, shown, ends):
        accuracy_axes(axes, setting, "test accuracy, %", "communication round")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(axes, last, styles, size[1])
    return figure


def draw_lines(axes: Axes, frame: pd.DataFrame, methods: list[str], styles: dict[str, LineStyle]) -> dict[str, float]:
    """Draw the lines of one panel, wider ones on top; returns the last value of each, for its label."""
    ends: dict[str, float] = {}
    axes.margins(x=0.0)
    alpha = min(0.3, 1.2 / len(frame.groupby(["method", "seed"])))  # many thin lines would hide the thick ones
    for method in methods:
        rows, style = frame[frame["method"] == method], styles[method]
        if rows.empty:
            continue
        for seed, run in rows.groupby("seed"):
            thin = axes.plot(run["round"], run["accuracy"], color=style.colour, linewidth=0.7, alpha=alpha)
            thin[0].set_gid(f"run {method} {seed}")
        mean = rows.groupby("round")["accuracy"].mean().rolling(SMOOTH, min_periods=1).mean()
        thick = {"color": style.colour, "linestyle": style.linestyle, "linewidth": style.width}
        axes.plot(mean.index, mean, **thick, zorder=2 + style.width, gid=f"line {method}")
        ends[method] = float(mean.iloc[-1])
    return ends
