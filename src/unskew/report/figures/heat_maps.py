"""Tables as colour: who holds what, accuracy and predictions by class.

A cell is one hue whose opacity is the value, so that it reads on light and dark paper; the image has a pixel per cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from unskew.report.figures.figure_layout import INK, NARROW, below, heading, room, sheet, short, styled, whole

HUE = (46, 134, 205)
NAMED = 12  # classes that are named; more are numbered
MOST = 160  # columns a narrow figure can show


@styled
def holdings_map(table: pd.DataFrame, classes: Sequence[str], width: float = NARROW) -> Figure:
    """Classes × clients, share of the client's rows. Many clients are sorted by their main class and merged in groups.

    table: clients × classes, rows held.
    """
    shares = shares_of(table)
    if is_sorted(len(shares)):
        shares = shares[np.lexsort((-shares.max(axis=1), shares.argmax(axis=1)))]
    axes = _map(shares.T, classes, width, max(float(shares.max()), 1e-9), (0, len(shares)))
    heading(axes, "share of a client's rows by class")
    below(axes, "clients, sorted by main class" if is_sorted(len(shares)) else "client")
    if not is_sorted(len(shares)):  # the number of a client under the middle of its column
        ticks = [k for k in range(len(shares)) if k % (5 if len(shares) > 10 else 1) == 0]
        axes.set_xticks([k + 0.5 for k in ticks], [str(table.index[k]) for k in ticks])
    return whole(axes)


def shares_of(table: pd.DataFrame) -> NDArray[np.float64]:
    """Clients × classes, each client's rows as shares; zeros where it has none."""
    counts = table.to_numpy(float)
    return counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)


def is_sorted(clients: int) -> bool:
    """Whether there are too many clients to keep their order."""
    return clients > 40


@styled
def class_rounds(table: pd.DataFrame, classes: Sequence[str], title: str, top: float, width: float = NARROW) -> Figure:
    """Classes × rounds. table: rounds × classes in percent; top: the value of full colour."""
    first, last = int(table.index.min()), int(table.index.max())
    table = table.reindex(range(first, last + 1)).ffill()  # between evaluations the last score is what is known
    axes = _map(table.to_numpy(float).T, classes, width, top, (first - 0.5, last + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    heading(axes, short(title, 48))
    below(axes, "round")
    return whole(axes)


@styled
def class_methods(table: pd.DataFrame, classes: Sequence[str], width: float = NARROW) -> Figure:
    """Methods × classes of final accuracy in percent, the number in the cell where there is room."""
    labels = [short(str(name)) for name in table.index]
    height = 58 + 22 * len(labels)
    axes = sheet(width, height, left=room(labels), right=8)
    values = table.to_numpy(float)
    _image(axes, values, 100.0, (-0.5, values.shape[1] - 0.5, len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="both", length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    if len(classes) <= NAMED:
        letters = 9 if width > NARROW else max(int(24 / len(classes)), 2)
        axes.set_xticks(range(len(classes)), [short(name, letters) for name in classes])
        for (row, column), value in np.ndenumerate(values):
            if np.isfinite(value):
                axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=INK, fontsize=11)
    heading(axes, "accuracy of the final model by class, %")
    below(axes, "class")
    return whole(axes)


def _map(
    values: NDArray[np.float64], classes: Sequence[str], width: float, top: float, span: tuple[float, float]
) -> Axes:
    """Classes downwards, something else to the right."""
    names = [short(name, 12) for name in classes] if len(classes) <= NAMED else ["999"]
    axes = sheet(width, 210, left=max(room(names), 30), right=12)
    count = len(classes)
    _image(axes, merged(values, MOST), top, (span[0], span[1], count - 0.5, -0.5))
    if count <= NAMED:
        axes.set_yticks(range(count), names)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return axes


def merged(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Neighbouring columns averaged until there are few enough.

    >>> merged(np.array([[0.0, 1.0, 2.0, 4.0, 5.0]]), 3)
    array([[0.5, 3. , 5. ]])
    """
    size = -(-values.shape[1] // most)
    if size == 1:
        return values
    groups = [values[:, i : i + size] for i in range(0, values.shape[1], size)]
    known = [np.maximum(np.isfinite(group).sum(axis=1), 1) for group in groups]
    return np.stack([np.nansum(group, axis=1) / number for group, number in zip(groups, known)], axis=1)


def _image(axes: Axes, values: NDArray[np.float64], top: float, extent: tuple[float, float, float, float]) -> None:
    """One pixel per cell; a cell without a value is empty."""
    cells = np.zeros((*values.shape, 4), np.uint8)
    cells[..., :3] = HUE
    cells[..., 3] = np.round(255 * np.clip(np.nan_to_num(values) / top, 0, 1))
    axes.imshow(cells, extent=extent, aspect="auto", interpolation="none")
