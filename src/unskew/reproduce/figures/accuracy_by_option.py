"""Best accuracy against a setting, a panel per kind of setting: FedLMD's figures 5, 7, 8 and 9.

A label such as `epochs=5` says the kind and the value, a column's name such as `cifar10-2` the split. It names the
setting, or, where each method has the option under a name of its own, it is the end of the method's label:
`fedlmd tau=3`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

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

COLUMNS = ["dataset", "method", "option", "value", "seed", "rounds", "best", "final", "mean_last10"]
Place = tuple[str, str, float]  # method, option and its value
Reader = Callable[[str, str], Place]  # from the labels of a run


@dataclass(frozen=True)
class PanelOption:
    """What a panel varies."""

    title: str
    axis: str
    log: bool = True


def by_setting(method: str, setting: str) -> Place:
    """The place of a run whose setting varies.

    >>> by_setting("fedlmd", "epochs=5")
    ('fedlmd', 'epochs', 5.0)
    """
    option, _, value = setting.partition("=")
    return method, option, float(value)


def by_column(method: str, setting: str) -> Place:
    """The place of a run whose split varies, by the column's name: shards are whole numbers, alpha has a point.

    >>> by_column("fedlmd", "cifar10-0.05"), by_column("fedlmd", "cifar10-2")
    (('fedlmd', 'alpha', 0.05), ('fedlmd', 's', 2.0))
    """
    value = setting.rpartition("-")[2]
    return method, "alpha" if "." in value else "s", float(value)


def by_method(method: str, setting: str) -> Place:
    """The place of a run whose method's option varies.

    >>> by_method("fedlmd-tf beta=0.5", "cifar10-0.05")
    ('fedlmd-tf', 'beta', 0.5)
    """
    name, _, varied = method.rpartition(" ")
    return by_setting(name, varied)


def data(runs: list[FinishedCell], place: Reader) -> pd.DataFrame:
    """dataset, method, option, value, seed, rounds, and accuracies of the run in percent: best, final, mean_last10."""
    rows = [
        (p.run.config.data.name, *place(p.method, p.setting), p.seed, s.last_round or p.run.config.rounds, *scores)
        for p in runs
        for s in [p.run.summary]
        for scores in [(s.best, s.final, s.mean_last10)]
    ]
    return pd.DataFrame(rows, columns=COLUMNS).round({"best": 2, "final": 2, "mean_last10": 2})


@styled
def draw(
    frame: pd.DataFrame, name: str, title: str, place: Reader, options: dict[str, PanelOption], note: str = ""
) -> Figure:
    """A line per method through the means of its seeds; a small dot per run where there are several."""
    check_some(frame, name)
    cells = [place(method, setting) for method, setting in itertools.product(*wanted(name))]
    methods = all_of((method for method, _, _ in cells), frame["method"])
    values = sorted({(option, value) for _, option, value in cells}, key=lambda v: (list(options).index(v[0]), v[1]))
    found = {(m, f"{o}={v:g}") for m, o, v in zip(frame["method"], frame["option"], frame["value"])}
    absent = missing(methods, [f"{o}={v:g}" for o, v in values], found)
    shown = [option for option in options if option in set(frame["option"])]
    rounds = int(frame["rounds"].max())
    what = f"Best test accuracy of {rounds} rounds" + (", mean of the seeds; dots: runs." if _several(frame) else ".")
    size = (420.0, 280.0) if len(shown) == 1 else (330.0, 280.0)
    figure, places = panels(1, len(shown), size, title, caption(frame, what, absent, note))
    drawn = marks(methods)
    ends = [lines(axes, frame[frame["option"] == o], methods, drawn) for axes, o in zip(places, shown)]
    same_height(places)
    for axes, option, last in zip(places, shown, ends):
        accuracy_axes(axes, options[option].title, "best test accuracy, %", options[option].axis)
        ticks(axes, [v for o, v in values if o == option], options[option].log)
        if len(methods) > 1:
            label_ends(axes, last, drawn, size[1])
    return figure


def _several(frame: pd.DataFrame) -> bool:
    return frame["seed"].nunique() > 1


def lines(axes: Axes, frame: pd.DataFrame, methods: list[str], drawn: dict[str, LineStyle]) -> dict[str, float]:
    """The lines of one panel, and where they end."""
    ends: dict[str, float] = {}
    for method in methods:
        rows, mark = frame[frame["method"] == method].sort_values("value"), drawn[method]
        if rows.empty:
            continue
        if _several(rows):
            axes.plot(rows["value"], rows["best"], ".", color=mark.colour, alpha=0.4, gid=f"runs {method}")
        mean = rows.groupby("value")["best"].mean()
        line = {"color": mark.colour, "linestyle": mark.dashes, "linewidth": mark.width}
        axes.plot(mean.index, mean, marker=mark.sign, markersize=6.5, **line, gid=f"line {method}")
        ends[method] = float(mean.iloc[-1])
    return ends


def ticks(axes: Axes, values: list[float], log: bool) -> None:
    """A tick under every value that is played."""
    if log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
