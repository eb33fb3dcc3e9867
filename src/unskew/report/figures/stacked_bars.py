"""Stacked bars per method: bytes by kind and direction, seconds of a round."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from unskew.report.figures.figure_layout import (
    INK,
    MUTED,
    NARROW,
    RULE,
    SERIES,
    below,
    heading,
    room,
    sheet,
    short,
    styled,
    whole,
)
from unskew.results.format_numbers import in_bytes, in_seconds

ROW = 20.0  # pixels of a bar and its share of the gap


@styled
def traffic_bars(frame: pd.DataFrame, width: float = NARROW) -> Figure:
    """Two bars per method, up and down, stacked by kind. frame: method, direction, kind, bytes."""
    methods = [str(name) for name in frame["method"].unique()]
    kinds = colours_of_kinds(frame)
    rows = [(method, way) for method in methods for way in ("up", "down")]
    table = frame.pivot_table(index=["method", "direction"], columns="kind", values="bytes", aggfunc="sum")
    table = table.reindex(pd.MultiIndex.from_tuples(rows)).fillna(0.0)
    labels = [f"{short(method)} {'↑' if way == 'up' else '↓'}" for method, way in rows]
    places = [1.28 * (i // 2) * 2 + 0.95 * (i % 2) for i in range(len(rows))]  # the two of a method lie close together
    axes = _bars(labels, places, table, kinds, width)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_bytes(value)))
    _totals(axes, places, [in_bytes(total) for total in table.sum(axis=1)], table)
    heading(axes, "bytes of a whole run, sent up ↑ and down ↓")
    return whole(axes)


@styled
def time_bars(frame: pd.DataFrame, width: float = NARROW) -> Figure:
    """Median seconds of a round, training and evaluation stacked. frame: method, what, seconds."""
    table = frame.pivot_table(index="method", columns="what", values="seconds", sort=False).fillna(0.0)
    labels = [short(str(name)) for name in table.index]
    places = [1.25 * i for i in range(len(labels))]
    axes = _bars(labels, places, table, colours_of_times(frame), width)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_seconds(value)))
    _totals(axes, places, [in_seconds(total) for total in table.sum(axis=1)], table)
    heading(axes, "median time of a round")
    return whole(axes)


def colours_of_kinds(frame: pd.DataFrame) -> dict[str, str]:
    """Kinds of artefacts, the heaviest first."""
    kinds = frame.groupby("kind")["bytes"].sum().sort_values(ascending=False).index
    return {str(kind): SERIES[i % len(SERIES)] for i, kind in enumerate(kinds)}


def colours_of_times(frame: pd.DataFrame) -> dict[str, str]:
    """Training and evaluation."""
    return {str(what): (SERIES[0], MUTED)[i % 2] for i, what in enumerate(frame["what"].unique())}


def _bars(labels: list[str], places: list[float], table: pd.DataFrame, colours: dict[str, str], width: float) -> Axes:
    axes = sheet(width, 58 + ROW * (max(places) + 1), left=room(labels), right=64)
    start = table.iloc[:, 0] * 0.0
    for name, colour in colours.items():
        axes.barh(places, table[name], left=start, height=0.8, color=colour, gid=f"bar {name}")
        start = start + table[name]
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.axvline(0, color=RULE, linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(3 if width == NARROW else 6))
    below(axes, "")
    return axes


def _totals(axes: Axes, places: list[float], texts: list[str], table: pd.DataFrame) -> None:
    for place, text, total in zip(places, texts, table.sum(axis=1)):
        axes.annotate(text, (total, place), (5, 0), textcoords="offset pixels", va="center", color=INK)
