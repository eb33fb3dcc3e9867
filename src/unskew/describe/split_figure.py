"""Draw a split: a heat map of clients by classes, and the clients' sizes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.base.errors import UserError
from unskew.describe.describe_split import SplitDescription
from unskew.results.atomic_write import write_output

SUFFIXES = (".png", ".svg", ".pdf")
MAX_NAMED = 30  # up to this many classes, the axis shows their names
MAX_BARS = 60  # up to this many clients, each has a bar


def draw(split: SplitDescription, path: Path, title: str) -> None:
    """Write the figure; the path's suffix gives the format."""
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _heat(split, left, figure)
    _sizes(split, right)
    figure.suptitle(title)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150, format=path.suffix.removeprefix("."))
    write_output(path, buffer.getvalue())


def check(path: Path) -> None:
    """Refuse an unsupported suffix before data are read."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"--out: expected a file ending in {', '.join(SUFFIXES)}, found {path.name!r}")


def _heat(split: SplitDescription, axes: Axes, figure: Figure) -> None:
    counts, label = split.counts, "client"
    if len(counts) > MAX_BARS:  # rows too thin to be identified by number, so group similar clients
        counts = counts[np.lexsort((-counts.sum(axis=1), counts.argmax(axis=1)))]
        label = "clients, by the class they hold most of"
    held = np.ma.masked_equal(counts, 0)  # classes that a client does not hold stay white
    image = axes.imshow(held, aspect="auto", interpolation="nearest", cmap="viridis_r", vmin=0)
    figure.colorbar(image, ax=axes, label="rows")
    axes.set(xlabel="class", ylabel=label)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if len(split.classes) <= MAX_NAMED:
        slanted = max(map(len, split.classes)) > 2
        axes.set_xticks(range(len(split.classes)), split.classes, rotation=45 if slanted else 0)


def _sizes(split: SplitDescription, axes: Axes) -> None:
    """One bar per client next to its row of the heat map, or a histogram if there are too many clients."""
    sizes = split.counts.sum(axis=1)
    middle = float(np.median(sizes))
    axes.axvline(middle, color="#c0392b", linestyle="--")
    axes.set(xlabel="rows per client", title=f"median {middle:g} (dashed)")
    if len(sizes) <= MAX_BARS:
        axes.barh(range(len(sizes)), sizes, color="#44546a")
        axes.set(ylim=(len(sizes) - 0.5, -0.5), ylabel="client")
    else:
        axes.hist(sizes, bins=30, color="#44546a")
        axes.set(ylabel="clients")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
