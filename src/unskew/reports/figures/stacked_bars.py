"""Stacked bars per method: bytes by kind and direction, seconds per round."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from unskew.reports.figures.figure_layout import (
    INK,
    MUTED,
    NARROW,
    RULE,
    SERIES,
    figure_of,
    label_width,
    new_axes,
    shorten,
    styled,
    x_title,
    y_title,
)
from unskew.results.format_numbers import in_bytes, in_seconds

ROW = 20.0  # pixels per bar, including its share of the gap


@styled
def traffic_bars(frame: pd.DataFrame, width: float = NARROW) -> Figure:
    """Two bars per method, up and down, stacked by kind. frame: method, direction, kind, bytes."""
    methods = [str(name) for name in frame["method"].unique()]
    kinds = kind_colours(frame)
    rows = [(method, direction) for method in methods for direction in ("up", "down")]
    table = frame.pivot_table(index=["method", "direction"], columns="kind", values="bytes", aggfunc="sum")
    table = table.reindex(pd.MultiIndex.from_tuples(rows)).fillna(0.0)
    labels = [f"{shorten(method)} {'↑' if direction == 'up' else '↓'}" for method, direction in rows]
    positions = [2.56 * (i // 2) + 0.95 * (i % 2) for i in range(len(rows))]  # the bars of a method are close together
    axes = _bars(labels, positions, table, kinds, width)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_bytes(value)))
    _label_totals(axes, positions, [in_bytes(total) for total in table.sum(axis=1)], table)
    y_title(axes, "bytes per run, upload ↑ and download ↓")
    return figure_of(axes)


@styled
def time_bars(frame: pd.DataFrame, width: float = NARROW) -> Figure:
    """Median seconds per round, training and evaluation stacked. frame: method, what, seconds."""
    table = frame.pivot_table(index="method", columns="what", values="seconds", sort=False).fillna(0.0)
    labels = [shorten(str(name)) for name in table.index]
    positions = [1.25 * i for i in range(len(labels))]
    axes = _bars(labels, positions, table, time_colours(frame), width)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_seconds(value)))
    _label_totals(axes, positions, [in_seconds(total) for total in table.sum(axis=1)], table)
    y_title(axes, "median time per round")
    return figure_of(axes)


def kind_colours(frame: pd.DataFrame) -> dict[str, str]:
    """A colour per kind of artefact, the kind with the most bytes first."""
    kinds = frame.groupby("kind")["bytes"].sum().sort_values(ascending=False).index
    return {str(kind): SERIES[i % len(SERIES)] for i, kind in enumerate(kinds)}


def time_colours(frame: pd.DataFrame) -> dict[str, str]:
    """A colour each for training and evaluation."""
    return {str(phase): (SERIES[0], MUTED)[i % 2] for i, phase in enumerate(frame["what"].unique())}


def _bars(
    labels: list[str], positions: list[float], table: pd.DataFrame, colours: dict[str, str], width: float
) -> Axes:
    axes = new_axes(width, 58 + ROW * (max(positions) + 1), left=label_width(labels), right=64)
    start = table.iloc[:, 0] * 0.0
    for name, colour in colours.items():
        axes.barh(positions, table[name], left=start, height=0.8, color=colour, gid=f"bar {name}")
        start = start + table[name]
    axes.set_yticks(positions, labels)
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.axvline(0, color=RULE, linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(3 if width == NARROW else 6))
    x_title(axes, "")
    return axes


def _label_totals(axes: Axes, positions: list[float], texts: list[str], table: pd.DataFrame) -> None:
    for position, text, total in zip(positions, texts, table.sum(axis=1)):
        axes.annotate(text, (total, position), (5, 0), textcoords="offset pixels", va="center", color=INK)
