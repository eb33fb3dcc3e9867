"""A split as a figure: clients by classes, and the sizes beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from unskew.describe.split import Split
from unskew.errors import UserError

ENDINGS = (".png", ".svg", ".pdf")
NAMED = 30  # classes with their names on the axis


def draw(split: Split, path: Path, title: str) -> None:
    """Write the figure; the ending of the path says which kind."""
    figure = Figure(figsize=(10, 5.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _heat(split, left, figure)
    _sizes(split, right)
    figure.suptitle(title)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UserError(f"--out: expected a file that can be written, found: {error}") from error


def check(path: Path) -> None:
    """Refuse an ending that cannot be drawn, before data are read."""
    if path.suffix not in ENDINGS:
        raise UserError(f"--out: expected a file ending in {', '.join(ENDINGS)}, found {path.name!r}")


def _heat(split: Split, axes: Axes, figure: Figure) -> None:
    image = axes.imshow(split.counts, aspect="auto", interpolation="nearest", cmap="magma_r")
    figure.colorbar(image, ax=axes, label="rows")
    axes.set(xlabel="class", ylabel="client")
    if len(split.classes) <= NAMED:
        axes.set_xticks(range(len(split.classes)), split.classes, rotation=45, ha="right")


def _sizes(split: Split, axes: Axes) -> None:
    sizes = split.counts.sum(axis=1)
    axes.hist(sizes, bins=min(30, max(len(np.unique(sizes)), 1)), color="#44546a")
    axes.axvline(float(np.median(sizes)), color="#c0392b", linestyle="--", label=f"median {np.median(sizes):g}")
    axes.set(xlabel="rows of a client", ylabel="clients")
    axes.legend(frameon=False)
