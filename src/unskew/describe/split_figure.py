"""A split as a figure: clients by classes, and the sizes beside it."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.base.errors import UserError
from unskew.describe.describe_split import SplitDescription
from unskew.results.atomic_write import write_whole

ENDINGS = (".png", ".svg", ".pdf")
NAMED = 30  # classes with their names on the axis
BARS = 60  # clients with a bar each


def draw(split: SplitDescription, path: Path, title: str) -> None:
    """Write the figure; the ending of the path says which kind."""
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _heat(split, left, figure)
    _sizes(split, right)
    figure.suptitle(title)
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=150, format=path.suffix.removeprefix("."))
    write_whole(path, drawn.getvalue())


def check(path: Path) -> None:
    """Refuse an ending that cannot be drawn, before data are read."""
    if path.suffix not in ENDINGS:
        raise UserError(f"--out: expected a file ending in {', '.join(ENDINGS)}, found {path.name!r}")


def _heat(split: SplitDescription, axes: Axes, figure: Figure) -> None:
    counts, label = split.counts, "client"
    if len(counts) > BARS:  # too thin to be found by number, so alike ones stand together
        counts = counts[np.lexsort((-counts.sum(axis=1), counts.argmax(axis=1)))]
        label = "clients, by the class they hold most of"
    held = np.ma.masked_equal(counts, 0)  # what a client does not hold stays white
    image = axes.imshow(held, aspect="auto", interpolation="nearest", cmap="viridis_r", vmin=0)
    figure.colorbar(image, ax=axes, label="rows")
    axes.set(xlabel="class", ylabel=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(split.classes) <= NAMED:
        slanted = max(map(len, split.classes)) > 2
        axes.set_xticks(range(len(split.classes)), split.classes, rotation=45 if slanted else 0)


def _sizes(split: SplitDescription, axes: Axes) -> None:
    """A bar for every client beside its line of the map, or a histogram where there are too many for that."""
    sizes = split.counts.sum(axis=1)
    middle = float(np.median(sizes))
    axes.axvline(middle, color="#c0392b", linestyle="--")
    axes.set(xlabel="rows of a client", title=f"median {middle:g} (dashed)")
    if len(sizes) <= BARS:
        axes.barh(range(len(sizes)), sizes, color="#44546a")
        axes.set(ylim=(len(sizes) - 0.5, -0.5), ylabel="client")
    else:
        axes.hist(sizes, bins=30, color="#44546a")
        axes.set(ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
