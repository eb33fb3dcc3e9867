"""Heat maps: data by client, accuracy and predictions by class.

A cell has one hue whose opacity is the value, which works on light and dark pages; the image has one pixel per cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from unskew.reports.figures.figure_layout import (
    INK,
    NARROW,
    figure_of,
    label_width,
    new_axes,
    shorten,
    styled,
    x_title,
    y_title,
)

HUE = (46, 134, 205)
MAX_NAMED = 12  # classes; with more of them the axis shows numbers
MAX_COLUMNS = 160  # that a narrow figure can show
MAX_UNSORTED = 40  # clients; more of them are sorted by main class


@styled
def holdings_map(table: pd.DataFrame, classes: Sequence[str], width: float = NARROW) -> Figure:
    """Classes × clients: share of the client's rows. Many clients are sorted by main class and averaged in groups.

    table: clients × classes, number of rows.
    """
    shares = shares_of(table)
    sort = len(shares) > MAX_UNSORTED
    if sort:
        shares = shares[np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))]
    axes = _class_heat_map(shares.T, classes, width, max(float(shares.max()), 1e-9), (0, len(shares)))
    y_title(axes, "share of a client's rows by class")
    x_title(axes, "clients, sorted by main class" if sort else "client")
    if not sort:  # centre each number below its column
        ticks = [k for k in range(len(shares)) if k % (5 if len(shares) > 10 else 1) == 0]
        axes.set_xticks([k + 0.5 for k in ticks], [str(table.index[k]) for k in ticks])
    return figure_of(axes)


def shares_of(table: pd.DataFrame) -> NDArray[np.float64]:
    """Clients × classes, each client's rows as shares; zeros where it has none."""
    counts = table.to_numpy(float)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


@styled
def class_rounds(table: pd.DataFrame, classes: Sequence[str], title: str, top: float, width: float = NARROW) -> Figure:
    """Classes × rounds. table: rounds × classes in percent; top: the value of full colour."""
    first, last = int(table.index.min()), int(table.index.max())
    table = table.reindex(range(first, last + 1)).ffill()  # rounds without evaluation repeat the last value
    axes = _class_heat_map(table.to_numpy(float).T, classes, width, top, (first - 0.5, last + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    y_title(axes, shorten(title, 48))
    x_title(axes, "round")
    return figure_of(axes)


@styled
def class_methods(table: pd.DataFrame, classes: Sequence[str], width: float = NARROW) -> Figure:
    """Methods × classes: final accuracy in percent, with numbers in the cells if there is room."""
    labels = [shorten(str(name)) for name in table.index]
    height = 58 + 22 * len(labels)
    axes = new_axes(width, height, left=label_width(labels), right=8)
    values = table.to_numpy(float)
    _image(axes, values, 100.0, (-0.5, values.shape[1] - 0.5, len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    if len(classes) <= MAX_NAMED:
        characters = 9 if width > NARROW else max(int(24 / len(classes)), 2)
        axes.set_xticks(range(len(classes)), [shorten(name, characters) for name in classes])
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=INK, fontsize=11)
    y_title(axes, "accuracy of the final model by class, %")
    x_title(axes, "class")
    return figure_of(axes)


def _class_heat_map(
    values: NDArray[np.float64], classes: Sequence[str], width: float, top: float, span: tuple[float, float]
) -> Axes:
    """A heat map with classes as rows."""
    names = [shorten(name, 12) for name in classes] if len(classes) <= MAX_NAMED else ["999"]
    axes = new_axes(width, 210, left=max(label_width(names), 30), right=12)
    count = len(classes)
    _image(axes, merge_columns(values, MAX_COLUMNS), top, (span[0], span[1], count - 0.5, -0.5))
    if count <= MAX_NAMED:
        axes.set_yticks(range(count), names)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def merge_columns(values: NDArray[np.float64], max_columns: int) -> NDArray[np.float64]:
    """Average neighbouring columns so that at most `max_columns` remain.

    >>> merge_columns(np.array([[0.0, 1.0, 2.0, 4.0, 5.0]]), 3)
    array([[0.5, 3. , 5. ]])
    """
    size = -(-values.shape[1] // max_columns)
    if size == 1:
        return values
    groups = [values[:, i : i + size] for i in range(0, values.shape[1], size)]
    known = [np.maximum(np.isfinite(group).sum(axis=1), 1) for group in groups]
    return np.stack([np.nansum(group, axis=1) / number for group, number in zip(groups, known)], axis=1)


def _image(axes: Axes, values: NDArray[np.float64], top: float, extent: tuple[float, float, float, float]) -> None:
    """One pixel per cell; cells without a value stay empty."""
    cells = np.zeros((*values.shape, 4), np.uint8)
    cells[..., :3] = HUE
    cells[..., 3] = np.round(255 * np.clip(np.nan_to_num(values) / top, 0, 1))
    axes.imshow(cells, extent=extent, aspect="auto", interpolation="none")
