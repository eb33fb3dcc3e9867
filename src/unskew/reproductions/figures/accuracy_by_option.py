"""Best accuracy against an option, one panel per option: FedLMD's figures 5, 7, 8 and 9.

The option and its value are read from a run's labels: from the setting (`epochs=5`), from the column's name, which
gives the split (`cifar10-2`), or from the end of the method's label (`fedlmd tau=3`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

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

COLUMNS = ["dataset", "method", "option", "value", "seed", "rounds", "best", "final", "mean_last10"]
PanelPoint = tuple[str, str, float]  # method, option and its value
LabelParser = Callable[[str, str], PanelPoint]  # from the labels of a run


@dataclass(frozen=True)
class PanelOption:
    """The option that a panel varies."""

    title: str
    axis: str
    log: bool = True


def by_setting(method: str, setting: str) -> PanelPoint:
    """The point of a run whose setting names the option.

    >>> by_setting("fedlmd", "epochs=5")
    ('fedlmd', 'epochs', 5.0)
    """
    option, _, value = setting.partition("=")
    return method, option, float(value)


def by_column(method: str, setting: str) -> PanelPoint:
    """The point of a run whose column names the split: shards are whole numbers, alpha has a decimal point.

    >>> by_column("fedlmd", "cifar10-0.05"), by_column("fedlmd", "cifar10-2")
    (('fedlmd', 'alpha', 0.05), ('fedlmd', 's', 2.0))
    """
    value = setting.rpartition("-")[2]
    return method, "alpha" if "." in value else "s", float(value)


def by_method(method: str, setting: str) -> PanelPoint:
    """The point of a run whose method's label names the option.

    >>> by_method("fedlmd-tf beta=0.5", "cifar10-0.05")
    ('fedlmd-tf', 'beta', 0.5)
    """
    name, _, varied = method.rpartition(" ")
    return by_setting(name, varied)


def data(runs: list[FinishedCell], parse_label: LabelParser) -> pd.DataFrame:
    """A row per run: dataset, method, option, value, seed, rounds, and best, final, mean_last10 accuracy in percent."""
    rows = [
        (
            p.run.config.data.name,
            *parse_label(p.method, p.setting),
            p.seed,
            s.last_round or p.run.config.rounds,
            *scores,
        )
        for p in runs
        for s in [p.run.summary]
        for scores in [(s.best, s.final, s.mean_last10)]
    ]
    return pd.DataFrame(rows, columns=COLUMNS).round({"best": 2, "final": 2, "mean_last10": 2})


@with_figure_style
def draw(
    frame: pd.DataFrame,
    name: str,
    title: str,
    parse_label: LabelParser,
    options: dict[str, PanelOption],
    note: str = "",
) -> Figure:
    """A line per method through the mean of its seeds; with several seeds, also a small dot per run."""
    check_not_empty(frame, name)
    cells = [parse_label(method, setting) for method, setting in itertools.product(*recipe_labels(name))]
    methods = in_recipe_order((method for method, _, _ in cells), frame["method"])
    values = sorted({(option, value) for _, option, value in cells}, key=lambda v: (list(options).index(v[0]), v[1]))
    available = {(m, f"{o}={v:g}") for m, o, v in zip(frame["method"], frame["option"], frame["value"])}
    absent = missing_series(methods, [f"{o}={v:g}" for o, v in values], available)
    shown = [option for option in options if option in set(frame["option"])]
    rounds = int(frame["rounds"].max())
    content = f"Best test accuracy over {rounds} rounds" + (
        ", mean over seeds; dots: single runs." if _several(frame) else "."
    )
    size = (420.0, 280.0) if len(shown) == 1 else (330.0, 280.0)
    figure, panel_axes = panels(1, len(shown), size, title, caption(frame, content, absent, note))
    styles = line_styles(methods)
    ends = [draw_lines(axes, frame[frame["option"] == o], methods, styles) for axes, o in zip(panel_axes, shown)]
    share_y_scale(panel_axes)
    for axes, option, last in zip(panel_axes, shown, ends):
        accuracy_axes(axes, options[option].title, "best test accuracy, %", options[option].axis)
        set_ticks(axes, [v for o, v in values if o == option], options[option].log)
        if len(methods) > 1:
            label_ends(axes, last, styles, size[1])
    return figure


def _several(frame: pd.DataFrame) -> bool:
    return frame["seed"].nunique() > 1


def draw_lines(axes: Axes, frame: pd.DataFrame, methods: list[str], styles: dict[str, LineStyle]) -> dict[str, float]:
    """Draw the lines of one panel; returns the last value of each, for its label."""
    ends: dict[str, float] = {}
    for method in methods:
        rows, style = frame[frame["method"] == method].sort_values("value"), styles[method]
        if rows.empty:
            continue
        if _several(rows):
            axes.plot(rows["value"], rows["best"], ".", color=style.colour, alpha=0.4, gid=f"runs {method}")
        mean = rows.groupby("value")["best"].mean()
        line = {"color": style.colour, "linestyle": style.linestyle, "linewidth": style.width}
        axes.plot(mean.index, mean, marker=style.marker, markersize=6.5, **line, gid=f"line {method}")
        ends[method] = float(mean.iloc[-1])
    return ends


def set_ticks(axes: Axes, values: list[float], log: bool) -> None:
    """One tick per value in the recipe."""
    if log:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
