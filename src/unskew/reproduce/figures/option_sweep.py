"""FLea's figures 6, 10 and 11: accuracy against one option of FLea, beside what else the paper sets there.

A label such as `flea a=2` says the method, the option and its value; a label without an option is a curve by round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reproduce.figures import accuracy_by_option, accuracy_curves
from unskew.reproduce.figures.figure_style import INK, accuracy_axes, label_ends, legend_beside, marks, panels, styled
from unskew.reproduce.figures.paper_figure import all_of, caption, check_some, missing, wanted
from unskew.reproduce.target_cells import FinishedCell
from unskew.results.run_tables import test_accuracy

COLUMNS = ["dataset", "series", "method", "option", "value", "seed", "metric", "round", "score"]
SIZE = (330.0, 280.0)
Draw = Callable[[Axes, pd.DataFrame], None]


@dataclass(frozen=True)
class SweepPanel:
    """What it shows, and the rows without which it is left out."""

    draw: Draw
    rows: Callable[[pd.DataFrame], pd.DataFrame]


def place(label: str) -> tuple[str, str, float]:
    """Method, option and value of a label.

    >>> place("flea a=0.5"), place("fedmix")
    (('flea', 'a', 0.5), ('fedmix', '', 0.0))
    """
    method, _, varied = label.partition(" ")
    option, _, value = varied.partition("=")
    return method, option, float(value or 0)


def data(runs: list[FinishedCell]) -> pd.DataFrame:
    """dataset, series, method, option, value, seed, metric, round, score.

    Metrics: best (in percent, round 0); accuracy by round of labels without an option; c, FLea's distance correlation,
    the mean over all rounds and clients.
    """
    rows: list[tuple] = []
    for p in runs:
        at = (p.run.config.data.name, p.method, *place(p.method), p.seed)
        rows.append((*at, "best", 0, round(p.run.summary.best, 2)))
        metrics = p.run.metrics
        c = metrics[metrics["metric"] == "flea/c"]["value"]
        rows += [(*at, "c", 0, round(float(c.mean()), 4))] if len(c) else []
        if not place(p.method)[1]:
            by_round = test_accuracy(metrics)
            rows += [(*at, "accuracy", t, round(v, 2)) for t, v in zip(by_round["round"], by_round["value"])]
    return pd.DataFrame(rows, columns=COLUMNS)


@styled
def draw(frame: pd.DataFrame, name: str, title: str, parts: tuple[SweepPanel, ...], note: str = "") -> Figure:
    """The panels that there is something for, side by side."""
    check_some(frame, name)
    absent = missing(all_of(wanted(name)[0], frame["series"]), [""], [(s, "") for s in frame["series"].unique()])
    shown = [part for part in parts if len(part.rows(frame))]
    what = "Best test accuracy over the rounds, mean of the seeds."
    figure, places = panels(1, len(shown), SIZE, title, caption(frame, what, absent, note))
    for axes, part in zip(places, shown):
        part.draw(axes, part.rows(frame))
    return figure


def by_round(title: str) -> SweepPanel:
    """Accuracy by round of the labels without an option."""

    def drawn(axes: Axes, rows: pd.DataFrame) -> None:
        methods = list(rows["method"].unique())
        look = marks(methods)
        ends = accuracy_curves.lines(axes, rows.rename(columns={"score": "accuracy"}), methods, look)
        accuracy_axes(axes, title, "test accuracy, %", "communication round")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        label_ends(axes, ends, look, SIZE[1])

    return SweepPanel(drawn, lambda frame: frame[frame["metric"] == "accuracy"])


def by_option(option: str, title: str, axis: str, *, log: bool, with_c: bool = False) -> SweepPanel:
    """Best accuracy against an option's values; with_c: also 1 - c, on an axis of its own."""

    def drawn(axes: Axes, rows: pd.DataFrame) -> None:
        best = rows[rows["metric"] == "best"].rename(columns={"score": "best"})
        methods = list(best["method"].unique())
        accuracy_by_option.lines(axes, best, methods, marks(methods))
        accuracy_axes(axes, title, "best test accuracy, %", axis)
        accuracy_by_option.ticks(axes, sorted(best["value"].unique()), log)
        c = rows[rows["metric"] == "c"].groupby("value")["score"].mean()
        if with_c and len(c):
            other = axes.twinx()
            other.plot(c.index, 1 - c, color=INK, linestyle=(0, (2, 2)), marker="s", gid="line 1 - c")
            other.set_ylabel("1 − c, dashed")
            other.spines[:].set_visible(False)

    return SweepPanel(drawn, lambda frame: frame[frame["option"] == option])


def densities(option: str, title: str) -> SweepPanel:
    """Beta(a, a) for every value of the option: the law itself."""
    from scipy.stats import beta

    def drawn(axes: Axes, rows: pd.DataFrame) -> None:
        x = np.linspace(0.005, 0.995, 199)
        values = sorted(rows["value"].unique())
        for a, shade in zip(values, np.linspace(0.25, 1, len(values))):
            axes.plot(x, beta.pdf(x, a, a), color="#1f77b4", alpha=shade, label=f"a = {a:g}", gid=f"line a={a:g}")
        legend_beside(axes)
        axes.set_title(title, loc="left", pad=8, color=INK)
        axes.set_xlabel("mixing weight, β")
        axes.set_ylabel("density")
        axes.set_ylim(0, 4)

    return SweepPanel(drawn, lambda frame: frame[frame["option"] == option])
