"""Intervals and distributions by method: paired differences, accuracy on the clients' own classes, sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from unskew.reports.figures.figure_layout import (
    INK,
    MUTED,
    NARROW,
    PAPER,
    RULE,
    SERIES,
    LineStyles,
    figure_of,
    label_width,
    new_axes,
    shorten,
    styled,
    x_title,
    y_title,
)
from unskew.results.format_numbers import points

ROW = 30.0


@styled
def forest(frame: pd.DataFrame, baseline: str, styles: LineStyles, width: float = NARROW) -> Figure:
    """Paired differences with intervals. frame: method, mean, low, high (percentage points)."""
    methods = [str(name) for name in frame["method"]]
    axes = _rows(methods, width, right=46)
    reach = [v for v in (*frame["low"], *frame["high"], *frame["mean"]) if math.isfinite(v)]
    # Differences of accuracies are at most 100 points, so longer intervals are cut off.
    low, high = max(min([*reach, 0]), -100), min(max([*reach, 0]), 100)
    padding = max(0.06 * (high - low), 0.5)
    axes.set_xlim(low - padding, high + padding)
    axes.axvline(0, color=INK, linewidth=1)
    values = frame[["mean", "low", "high"]].to_numpy(float).tolist()
    for i, (name, (mean, start, end)) in enumerate(zip(methods, values)):
        colour = styles[name][0]
        if math.isfinite(start):
            axes.plot([start, end], [i, i], color=colour, linewidth=2.5, gid=f"interval {name}")
        axes.plot([mean], [i], "o", color=colour, markersize=7, markeredgecolor=PAPER, gid=f"mean {name}")
        placement: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset pixels"}
        axes.annotate(points(mean), (1, i), (6, 0), va="center", color=INK, **placement)
    y_title(axes, f"method − {shorten(baseline, 30)}, percentage points, paired by seed")
    x_title(axes, f"worse ←   → better than {shorten(baseline)}")
    return figure_of(axes)


@styled
def client_boxes(frame: pd.DataFrame, styles: LineStyles, width: float = NARROW) -> Figure:
    """Accuracy for each client. Box: middle half; line: 5th to 95th percentile.

    frame: method, client, value.
    """
    methods = [str(name) for name in frame["method"].unique()]
    axes = _rows(methods, width, right=16)
    axes.set_xlim(0, 100)
    for i, method in enumerate(methods):
        values, colour = frame.loc[frame["method"] == method, "value"], styles[method][0]
        low, first, middle, third, high = np.percentile(values, (5, 25, 50, 75, 95))
        axes.plot([low, high], [i, i], color=colour, linewidth=1.5, gid=f"range {method}")
        axes.barh([i], [third - first], left=[first], height=0.5, color=colour, alpha=0.35, linewidth=0)
        axes.plot([middle, middle], [i - 0.25, i + 0.25], color=colour, linewidth=2.5, gid=f"median {method}")
    y_title(axes, "accuracy for each client, %")
    x_title(axes, "clients, all seeds")
    return figure_of(axes)


@styled
def sizes_histogram(sizes: pd.Series, width: float = NARROW) -> Figure:
    """Histogram of the number of rows per client. sizes: rows by client."""
    axes = new_axes(width, 190, left=38, right=16)
    few = int(sizes.max() - sizes.min()) + 1
    low, high = (sizes.min() - 0.5, sizes.max() + 0.5) if few <= 20 else (sizes.min(), sizes.max())
    axes.hist(sizes, bins=min(few, 20), range=(low, high), color=SERIES[0], edgecolor=PAPER, linewidth=1)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True) if few > 1 else FixedLocator([float(sizes.min())]))
    y_title(axes, "clients")
    x_title(axes, "rows per client")
    return figure_of(axes)


def _rows(methods: list[str], width: float, right: float) -> Axes:
    """A row per method, from the top."""
    labels = [shorten(method) for method in methods]
    axes = new_axes(width, 62 + ROW * len(methods), left=label_width(labels), right=right)
    axes.set_yticks(range(len(methods)), labels)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_color(RULE)
    axes.grid(axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(4 if width == NARROW else 8))
    axes.xaxis.label.set_color(MUTED)
    return axes
