"""Utility versus leakage: a disc per run, sized by the bytes it sent; up and to the left is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.audits.page.label_placement import Disc, LabelBox, place_labels
from unskew.audits.page.metric_titles import RECOGNISABLE
from unskew.reports.figures.figure_layout import (
    INK,
    MUTED,
    NARROW,
    PAPER,
    RULE,
    LineStyles,
    figure_of,
    label_width,
    new_axes,
    shorten,
    styled,
    x_title,
    y_title,
)
from unskew.results.format_numbers import in_bytes

RIGHT = 20.0  # right margin in pixels
LABEL_HEIGHT = 29.0  # pixels of a label's two lines: name and bytes
MIN_RADIUS, MAX_RADIUS = 5.0, 20.0  # pixels, for no bytes and for the most bytes


@styled
def pareto(frame: pd.DataFrame, axis: str, falls: bool, marks: LineStyles, width: float = NARROW) -> Figure:
    """frame: label, leak, accuracy (percent), bytes. axis: name of the leak; falls: a lower value is a larger leak."""
    axes = new_axes(width, 300 if width == NARROW else 400, left=40, right=RIGHT, bottom=40)
    x, y = frame["leak"].to_numpy(float), frame["accuracy"].to_numpy(float)
    _limits(axes, x, y, falls, width)
    axes.grid(axis="both")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="both", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4 if width == NARROW else 8))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    front = frame[pareto_front(x, y, falls)].sort_values("leak")
    if len(front) > 1:
        axes.plot(
            front["leak"], front["accuracy"], color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), gid="front", zorder=1
        )
    if axis.startswith("PSNR") and axes.get_xlim()[0] < RECOGNISABLE < axes.get_xlim()[1]:
        axes.axvline(RECOGNISABLE, color=RULE, linewidth=1.5)
        transform = axes.get_xaxis_transform()
        axes.annotate(
            "recognisable →", (RECOGNISABLE, 0), (5, 5), xycoords=transform, textcoords="offset pixels", color=MUTED
        )
    radii = MIN_RADIUS + (MAX_RADIUS - MIN_RADIUS) * np.sqrt(frame["bytes"] / max(float(frame["bytes"].max()), 1.0))
    for name, leak, accuracy, radius in zip(frame["label"], x, y, radii):
        colour = marks[name][0]
        axes.plot(
            [leak], [accuracy], "o", color=colour, markersize=2 * radius, markeredgecolor=PAPER,
            gid=f"run {name}",
        )  # fmt: skip
    _label_discs(axes, frame, list(radii), marks)
    axes.annotate("↖ better", (0, 1), (4, -14), xycoords="axes fraction", textcoords="offset pixels", color=MUTED)
    y_title(axes, "accuracy, %")
    x_title(axes, f"{axis}: {'←' if falls else '→'} leaks more")
    return figure_of(axes)


def pareto_front(leak: np.ndarray, accuracy: np.ndarray, falls: bool) -> np.ndarray:
    """The Pareto-optimal runs, [n] bool: those that no other run dominates in leak and accuracy.

    >>> pareto_front(np.array([30.0, 10.0, 20.0]), np.array([90.0, 80.0, 70.0]), False).tolist()
    [True, True, False]
    """
    cost = -leak if falls else leak
    dominated = [
        bool(((cost <= c) & (accuracy >= a) & ((cost < c) | (accuracy > a))).any()) for c, a in zip(cost, accuracy)
    ]
    return ~np.array(dominated, bool)


def _limits(axes: Axes, x: np.ndarray, y: np.ndarray, falls: bool, width: float) -> None:
    """Leaves a margin around the discs, and space for labels on the right."""
    wide, tall = max(float(np.ptp(x)), 0.05 * abs(float(x.max())), 1e-3), max(float(np.ptp(y)), 4.0)
    free = 0.3 if width == NARROW else 0.24
    axes.set_xlim(x.min() - 0.14 * wide, x.max() + free * wide)
    axes.set_ylim(y.min() - 0.22 * tall, min(y.max() + 0.22 * tall, 104))
    if falls:
        axes.invert_xaxis()


def _label_discs(axes: Axes, frame: pd.DataFrame, radii: list[float], marks: LineStyles) -> None:
    """Writes name and bytes next to each disc."""
    max_length = 18 if figure_of(axes).get_figwidth() * 72 == NARROW else 32
    texts = [(shorten(str(name), max_length), in_bytes(sent)) for name, sent in zip(frame["label"], frame["bytes"])]
    points = axes.transData.transform(frame[["leak", "accuracy"]].to_numpy(float))
    discs = [
        Disc(float(x), float(y), radius, label_width(pair) - 10, LABEL_HEIGHT)
        for (x, y), radius, pair in zip(points, radii, texts)
    ]
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)])
    sheet = LabelBox(left, bottom, right + RIGHT - 4, top)
    for name, (text, sent), disc, box in zip(frame["label"], texts, discs, place_labels(discs, sheet)):
        on_left = box.right < disc.x
        style: dict[str, Any] = {"xycoords": "figure pixels", "va": "top", "ha": "right" if on_left else "left"}
        x = box.right if on_left else box.left
        axes.annotate(text, (x, box.top), weight="bold", color=marks[str(name)][0], **style)
        axes.annotate(sent, (x, box.top - LABEL_HEIGHT / 2), color=INK, **style)
