"""Curves over rounds, labelled at their ends: accuracy by method, loss terms."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reports.figures.figure_layout import (
    NARROW,
    TEXT,
    LineStyles,
    figure_of,
    label_width,
    new_axes,
    shorten,
    spread_apart,
    styled,
    x_title,
    y_title,
)


@styled
def accuracy_curves(frame: pd.DataFrame, styles: LineStyles, width: float = NARROW) -> Figure:
    """Mean over seeds, with the range from the lowest to the highest seed shaded.

    frame: method, seed, round, value.
    """
    axes = _axes(frame, width, 250 if width == NARROW else 380)
    # Many methods get paler bands and thinner lines, or they would hide one another.
    opacity, linewidth = (0.14, 1.8) if len(styles) <= 5 else (0.08, 1.2)
    for method, rows in frame.groupby("method", sort=False):
        band = rows.groupby("round")["value"].agg(["mean", "min", "max"])
        colour, dashes = styles[str(method)]
        if rows["seed"].nunique() > 1:
            axes.fill_between(band.index, band["min"], band["max"], color=colour, alpha=opacity, linewidth=0)
        axes.plot(band.index, band["mean"], color=colour, linestyle=dashes, linewidth=linewidth, gid=f"line {method}")
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 0))
    _label_ends(axes, styles)
    y_title(axes, "test accuracy, %")
    return figure_of(axes)


@styled
def loss_curves(frame: pd.DataFrame, part: str, styles: LineStyles, width: float = NARROW) -> Figure:
    """One part's loss term by method. frame: method, part, round, value."""
    rows = frame[frame["part"] == part]
    axes = _axes(rows, width, 190)
    for method, line in rows.groupby("method", sort=False):
        colour, dashes = styles[str(method)]
        axes.plot(line["round"], line["value"], color=colour, linestyle=dashes, gid=f"line {method}")
    _label_ends(axes, styles)
    y_title(axes, f"loss term {shorten(part, 30)}")
    return figure_of(axes)


@styled
def dropped_curves(frame: pd.DataFrame, styles: LineStyles, width: float = NARROW) -> Figure:
    """Refused replies so far, mean over seeds. frame: method, seed, round, value."""
    seeds = frame.groupby("method")["seed"].nunique()
    axes = _axes(frame, width, 190)
    for method, rows in frame.groupby("method", sort=False):
        so_far = rows.groupby("round")["value"].sum().cumsum() / seeds[method]
        colour, dashes = styles[str(method)]
        axes.step(so_far.index, so_far, where="post", color=colour, linestyle=dashes, gid=f"line {method}")
    _label_ends(axes, styles)
    y_title(axes, "refused replies so far")
    return figure_of(axes)


def _axes(frame: pd.DataFrame, width: float, height: float) -> Axes:
    labels = [shorten(str(name)) for name in frame["method"].unique()]
    axes = new_axes(width, height, left=42, right=label_width(labels))
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(5 if width == NARROW else 10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.margins(x=0.0)
    x_title(axes, "round")
    return axes


def _label_ends(axes: Axes, styles: LineStyles) -> None:
    """Labels at the right ends of the curves, moved apart where they would overlap."""
    low, high = axes.get_ylim()
    pixels = axes.get_position().height * figure_of(axes).get_figheight() * 72
    ends = [(str(line.get_gid())[5:], float(line.get_ydata()[-1])) for line in axes.lines]  # type: ignore[index,arg-type]
    gap = min(TEXT * 1.2, pixels / max(len(ends) - 1, 1)) * (high - low) / pixels
    positions = spread_apart([y for _, y in ends], gap, low, high)
    placement: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset pixels", "va": "center"}
    for (name, _), y in zip(ends, positions):
        axes.annotate(shorten(name), (1, y), (7, 0), color=styles[name][0], weight="bold", **placement)
