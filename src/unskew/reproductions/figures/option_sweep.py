"""FLea's figures 6, 10 and 11: accuracy against one option of FLea, next to the paper's other panels.

A label such as `flea a=2` gives the method, the option and its value; a label without an option is a curve by round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reproductions.figures import accuracy_by_option, accuracy_curves
from unskew.reproductions.figures.figure_style import (
    INK,
    accuracy_axes,
    label_ends,
    legend_right,
    line_styles,
    panels,
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

COLUMNS = ["dataset", "series", "method", "option", "value", "seed", "metric", "round", "score"]
SIZE = (330.0, 280.0)
DrawPanel = Callable[[Axes, pd.DataFrame], None]


@dataclass(frozen=True)
class SweepPanel:
    """How a panel is drawn, and from which rows; without rows it is left out."""

    draw: DrawPanel
    rows: Callable[[pd.DataFrame], pd.DataFrame]


def parse_label(label: str) -> tuple[str, str, float]:
    """The method, option and value in a label.

    >>> parse_label("flea a=0.5"), parse_label("fedmix")
    (('flea', 'a', 0.5), ('fedmix', '', 0.0))
    """
    method, _, varied = label.partition(" ")
    option, _, value = varied.partition("=")
    return method, option, float(value or 0)


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """The table with the columns COLUMNS.

    Metrics: best (percent, round 0); accuracy by round, for labels without an option; c, FLea's distance correlation,
    averaged over all rounds and clients.
    """
    rows: list[tuple] = []
    for p in runs:
        at = (p.run.config.data.name, p.method, *parse_label(p.method), p.seed)
        rows.append((*at, "best", 0, round(p.run.summary.best, 2)))
        metrics = p.run.metrics
        c = metrics[metrics["metric"] == "flea/c"]["value"]
        rows += [(*at, "c", 0, round(float(c.mean()), 4))] if len(c) else []
        if not parse_label(p.method)[1]:
            by_round = test_accuracy(metrics)
            rows += [(*at, "accuracy", t, round(v, 2)) for t, v in zip(by_round["round"], by_round["value"])]
    return pd.DataFrame(rows, columns=COLUMNS)


@with_figure_style
def draw(frame: pd.DataFrame, name: str, title: str, parts: tuple[SweepPanel, ...], note: str = "") -> Figure:
    """The panels that have rows, side by side."""
    check_not_empty(frame, name)
    absent = missing_series(
        in_recipe_order(recipe_labels(name)[0], frame["series"]), [""], [(s, "") for s in frame["series"].unique()]
    )
    shown = [part for part in parts if len(part.rows(frame))]
    content = "Best test accuracy over the rounds, mean over seeds."
    figure, panel_axes = panels(1, len(shown), SIZE, title, caption(frame, content, absent, note))
    for axes, part in zip(panel_axes, shown):
        part.draw(axes, part.rows(frame))
    return figure


def by_round(title: str) -> SweepPanel:
    """A panel of accuracy by round, for the labels without an option."""

    def draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
        methods = list(rows["method"].unique())
        styles = line_styles(methods)
        ends = accuracy_curves.draw_lines(axes, rows.rename(columns={"score": "accuracy"}), methods, styles)
        accuracy_axes(axes, title, "test accuracy, %", "communication round")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(axes, ends, styles, SIZE[1])

    return SweepPanel(draw_panel, lambda frame: frame[frame["metric"] == "accuracy"])


def by_option(option: str, title: str, axis: str, *, log: bool, with_c: bool = False) -> SweepPanel:
    """A panel of best accuracy against an option's values; with_c: also 1 - c, on a second y axis."""

    def draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
        best = rows[rows["metric"] == "best"].rename(columns={"score": "best"})
        methods = list(best["method"].unique())
        accuracy_by_option.draw_lines(axes, best, methods, line_styles(methods))
        accuracy_axes(axes, title, "best test accuracy, %", axis)
        accuracy_by_option.set_ticks(axes, sorted(best["value"].unique()), log)
        c = rows[rows["metric"] == "c"].groupby("value")["score"].mean()
        if with_c and len(c):
            right = axes.twinx()
            right.plot(c.index, 1 - c, color=INK, linestyle=(0, (2, 2)), marker="s", gid="line 1 - c")
            right.set_ylabel("1 − c, dashed")
            right.spines[:].set_visible(False)

    return SweepPanel(draw_panel, lambda frame: frame[frame["option"] == option])


def densities(option: str, title: str) -> SweepPanel:
    """A panel of the density of Beta(a, a), for each value of the option."""
    from scipy.stats import beta

    def draw_panel(axes: Axes, rows: pd.DataFrame) -> None:
        x = np.linspace(0.005, 0.995, 199)
        values = sorted(rows["value"].unique())
        for a, shade in zip(values, np.linspace(0.25, 1, len(values))):
            axes.plot(x, beta.pdf(x, a, a), color="#1f77b4", alpha=shade, label=f"a = {a:g}", gid=f"line a={a:g}")
        legend_right(axes)
        axes.set_title(title, loc="left", pad=8, color=INK)
        axes.set_xlabel("mixing weight, β")
        axes.set_ylabel("density")
        axes.set_ylim(0, 4)

    return SweepPanel(draw_panel, lambda frame: frame[frame["option"] == option])
