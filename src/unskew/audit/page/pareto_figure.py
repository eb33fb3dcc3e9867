"""Utility against leak: a disc per run, the larger the more bytes it sent; up and to the left is better."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.audit.page.label_placement import Disc, LabelBox, placed
from unskew.audit.page.metric_titles import RECOGNISABLE
from unskew.report.figures.figure_layout import (
    INK,
    MUTED,
    NARROW,
    PAPER,
    RULE,
    Marks,
    below,
    heading,
    room,
    sheet,
    short,
    styled,
    whole,
)
from unskew.results.format_numbers import in_bytes

RIGHT = 20.0  # margin
LINES = 29.0  # height of a name and its bytes
SMALL, LARGE = 5.0, 20.0  # radius in pixels of no bytes and of the most


@styled
def pareto(frame: pd.DataFrame, axis: str, falls: bool, marks: Marks, width: float = NARROW) -> Figure:
    """frame: label, leak, accuracy (percent), bytes. axis: the leak in words; falls: a lower value is a larger leak."""
    axes = sheet(width, 300 if width == NARROW else 400, left=40, right=RIGHT, bottom=40)
    x, y = frame["leak"].to_numpy(float), frame["accuracy"].to_numpy(float)
    _limits(axes, x, y, falls, width)
    axes.grid(axis="both")
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(axis="both", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(4 if width == NARROW else 8))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    front = frame[on_front(x, y, falls)].sort_values("leak")
    if len(front) > 1:
        axes.plot(
            front["leak"], front["accuracy"], color=MUTED, linewidth=1.2, linestyle=(0, (4, 3)), gid="front", zorder=1
        )
    if axis.startswith("PSNR") and axes.get_xlim()[0] < RECOGNISABLE < axes.get_xlim()[1]:
        axes.axvline(RECOGNISABLE, color=RULE, linewidth=1.5)
        place = axes.get_xaxis_transform()
        axes.annotate(
            "recognisable →", (RECOGNISABLE, 0), (5, 5), xycoords=place, textcoords="offset pixels", color=MUTED
        )
    radii = SMALL + (LARGE - SMALL) * np.sqrt(frame["bytes"] / max(float(frame["bytes"].max()), 1.0))
    for name, leak, accuracy, radius in zip(frame["label"], x, y, radii):
        colour = marks[name][0]
        axes.plot(
            [leak], [accuracy], "o", color=colour, markersize=2 * radius, markeredgecolor=PAPER,
            gid=f"run {name}",
        )  # fmt: skip
    _names(axes, frame, list(radii), marks)
    axes.annotate("↖ better", (0, 1), (4, -14), xycoords="axes fraction", textcoords="offset pixels", color=MUTED)
    heading(axes, "accuracy, %")
    below(axes, f"{axis}: {'←' if falls else '→'} leaks more")
    return whole(axes)


def on_front(leak: np.ndarray, accuracy: np.ndarray, falls: bool) -> np.ndarray:
    """Which runs no other beats in both: [n] bool.

    >>> on_front(np.array([30.0, 10.0, 20.0]), np.array([90.0, 80.0, 70.0]), False).tolist()
    [True, True, False]
    """
    cost = -leak if falls else leak
    beaten = [
        bool(((cost <= c) & (accuracy >= a) & ((cost < c) | (accuracy > a))).any()) for c, a in zip(cost, accuracy)
    ]
    return ~np.array(beaten, bool)


def _limits(axes: Axes, x: np.ndarray, y: np.ndarray, falls: bool, width: float) -> None:
    """Room around the discs, and on the right for a name."""
    wide, tall = max(float(np.ptp(x)), 0.05 * abs(float(x.max())), 1e-3), max(float(np.ptp(y)), 4.0)
    free = 0.3 if width == NARROW else 0.24
    axes.set_xlim(x.min() - 0.14 * wide, x.max() + free * wide)
    axes.set_ylim(y.min() - 0.22 * tall, min(y.max() + 0.22 * tall, 104))
    if falls:
        axes.invert_xaxis()


def _names(axes: Axes, frame: pd.DataFrame, radii: list[float], marks: Marks) -> None:
    """Name and bytes beside each disc."""
    letters = 18 if whole(axes).get_figwidth() * 72 == NARROW else 32
    texts = [(short(str(name), letters), in_bytes(sent)) for name, sent in zip(frame["label"], frame["bytes"])]
    points = axes.transData.transform(frame[["leak", "accuracy"]].to_numpy(float))
    discs = [
        Disc(float(x), float(y), radius, room(pair) - 10, LINES) for (x, y), radius, pair in zip(points, radii, texts)
    ]
    (left, bottom), (right, top) = axes.transAxes.transform([(0, 0), (1, 1)])
    sheet = LabelBox(left, bottom, right + RIGHT - 4, top)
    for name, (text, sent), disc, box in zip(frame["label"], texts, discs, placed(discs, sheet)):
        on_left = box.right < disc.x
        put: dict[str, Any] = {"xycoords": "figure pixels", "va": "top", "ha": "right" if on_left else "left"}
        x = box.right if on_left else box.left
        axes.annotate(text, (x, box.top), weight="bold", color=marks[str(name)][0], **put)
        axes.annotate(sent, (x, box.top - LINES / 2), color=INK, **put)
