"""Curves over rounds, labelled at their ends: accuracy by method, loss terms."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.report.figures.figure_layout import (
    NARROW,
    TEXT,
    Marks,
    apart,
    below,
    heading,
    room,
    sheet,
    short,
    styled,
    whole,
)


@styled
def accuracy_curves(frame: pd.DataFrame, marks: Marks, width: float = NARROW) -> Figure:
    """Mean over seeds, with the range from the lowest to the highest seed shaded.

    frame: method, seed, round, value.
    """
    axes = _axes(frame, width, 250 if width == NARROW else 380)
    shade, thick = (0.14, 1.8) if len(marks) <= 5 else (0.08, 1.2)  # many bands and strokes would hide one another
    for method, rows in frame.groupby("method", sort=False):
        band = rows.groupby("round")["value"].agg(["mean", "min", "max"])
        colour, dashes = marks[str(method)]
        if rows["seed"].nunique() > 1:
            axes.fill_between(band.index, band["min"], band["max"], color=colour, alpha=shade, linewidth=0)
        axes.plot(band.index, band["mean"], color=colour, linestyle=dashes, linewidth=thick, gid=f"line {method}")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0))
    _label_ends(axes, marks)
    heading(axes, "test accuracy, %")
    return whole(axes)


@styled
def loss_curves(frame: pd.DataFrame, part: str, marks: Marks, width: float = NARROW) -> Figure:
    """One part's loss term by method. frame: method, part, round, value."""
    rows = frame[frame["part"] == part]
    axes = _axes(rows, width, 190)
    for method, line in rows.groupby("method", sort=False):
        colour, dashes = marks[str(method)]
        axes.plot(line["round"], line["value"], color=colour, linestyle=dashes, gid=f"line {method}")
    _label_ends(axes, marks)
    heading(axes, f"loss term {short(part, 30)}")
    return whole(axes)


@styled
def dropped_curves(frame: pd.DataFrame, marks: Marks, width: float = NARROW) -> Figure:
    """Clients left out so far, mean over seeds. frame: method, seed, round, value."""
    seeds = frame.groupby("method")["seed"].nunique()
    axes = _axes(frame, width, 190)
    for method, rows in frame.groupby("method", sort=False):
        so_far = rows.groupby("round")["value"].sum().cumsum() / seeds[method]
        colour, dashes = marks[str(method)]
        axes.step(so_far.index, so_far, where="post", color=colour, linestyle=dashes, gid=f"line {method}")
    _label_ends(axes, marks)
    heading(axes, "clients left out so far")
    return whole(axes)


def _axes(frame: pd.DataFrame, width: float, height: float) -> Axes:
    labels = [short(str(name)) for name in frame["method"].unique()]
    axes = sheet(width, height, left=42, right=room(labels))
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5 if width == NARROW else 10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.0)
    below(axes, "round")
    return axes


def _label_ends(axes: Axes, marks: Marks) -> None:
    """Names at the right, moved apart where curves end together."""
    low, high = axes.get_ylim()
    pixels = axes.get_position().height * whole(axes).get_figheight() * 72
    ends = [(str(line.get_gid())[5:], float(line.get_ydata()[-1])) for line in axes.lines]  # type: ignore[index,arg-type]
    gap = min(TEXT * 1.2, pixels / max(len(ends) - 1, 1)) * (high - low) / pixels
    places = apart([y for _, y in ends], gap, low, high)
    place: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset pixels", "va": "center"}
    for (name, _), y in zip(ends, places):
        axes.annotate(short(name), (1, y), (7, 0), color=marks[name][0], weight="bold", **place)
