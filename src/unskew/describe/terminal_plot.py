"""Plot a split in the terminal: shades for clients by classes, bars for sizes. Readable without colour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from unskew.describe.describe_split import Counts

MAX_LINES = 40  # more clients are grouped by the class they hold most of
MAX_COLUMNS = 100  # more classes are summed with their neighbours
BAR = 24
# (minimum share of the client's rows, shade, colour), largest first.
SHADES = ((0.75, "█", "bold red"), (0.5, "▓", "yellow"), (0.25, "▒", "green"), (0.05, "░", "cyan"), (0.0, "·", "dim"))
LEGEND = "shade: share of the client's rows   █ at least 75 %  ▓ 50 %  ▒ 25 %  ░ 5 %  · less"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def heat_map(counts: Counts) -> list[Text]:
    """One line per client, or per group of similar clients, with its size."""
    labels, shares, sizes = _lines(counts)
    columns = _columns(shares)
    cell = 3 if columns.shape[1] <= 20 else 2 if columns.shape[1] <= 40 else 1
    left, most = max(map(len, labels)), max(float(sizes.max()), 1.0)
    lines = [Text(f"{'class':>{left}} {_header(counts.shape[1], columns.shape[1], cell)}  rows", style="dim")]
    for label, row, size in zip(labels, columns, sizes):
        line = Text(f"{label:>{left}} ")
        for share in row:
            shade, style = _shade(float(share))
            line.append(f"{' ' if cell == 3 else ''}{shade * min(cell, 2)}", style)
        line.append(f"  {bar(float(size) / most)} {size:g}")
        lines.append(line)
    return [*lines, Text(LEGEND, style="dim")]


def histogram(sizes: NDArray[np.int64], bins: int = 8) -> list[str]:
    """A histogram of the number of rows per client."""
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        return [f"all {len(sizes)} clients have {low} rows"]
    edges = np.unique(np.linspace(low, high + 1, min(bins, high - low + 1) + 1).astype(int))
    counts, _ = np.histogram(sizes, edges)
    width = len(str(high))
    exact = bool((np.diff(edges) == 1).all())
    ends = ["" if exact else f" to {last - 1:>{width}}" for last in edges[1:]]
    return [
        f"{first:>{width}}{end} rows  {bar(count / counts.max())} {count} {'client' if count == 1 else 'clients'}"
        for first, end, count in zip(edges[:-1], ends, counts)
    ]


def bar(share: float, width: int = BAR) -> str:
    """A horizontal bar with a resolution of an eighth of a character.

    >>> bar(0.5, 4)
    '██  '
    """
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def _shade(share: float) -> tuple[str, str]:
    if share == 0:
        return " ", ""
    return next((shade, style) for least, shade, style in SHADES if share >= least)


def _lines(counts: Counts) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Labels, mean class shares [lines, classes] and mean sizes [lines]."""
    sizes = counts.sum(axis=1)
    shares = counts / np.maximum(sizes, 1)[:, None]
    if len(counts) <= MAX_LINES:
        return [f"client {k}" for k in range(len(counts))], shares, sizes.astype(float)
    # Group similar clients, because a mean over neighbours by number would hide the skew.
    main = np.where(sizes > 0, counts.argmax(axis=1), -1)
    kinds = np.unique(main[main >= 0])
    groups = [group for c in kinds for group in _split_group(np.flatnonzero(main == c), sizes, len(kinds))]
    labels = [f"{len(group)} with most of {main[group[0]]}" for group in groups]
    empty = np.flatnonzero(main < 0)
    if len(empty):
        groups, labels = [*groups, empty], [*labels, f"{len(empty)} empty"]
    return (
        labels,
        np.array([shares[group].mean(axis=0) for group in groups]),
        np.array([sizes[group].mean().round(1) for group in groups]),
    )


def _split_group(group: NDArray[np.int64], sizes: NDArray[np.int64], kinds: int) -> list[NDArray[np.int64]]:
    """Split a class's clients, sorted from large to small, into as many lines as there is room for."""
    order = group[np.argsort(-sizes[group], kind="stable")]
    return np.array_split(order, min(max((MAX_LINES - 1) // kinds, 1), len(order)))


def _columns(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum neighbouring classes if there are more than fit."""
    if shares.shape[1] <= MAX_COLUMNS:
        return shares
    return np.array([part.sum(axis=0) for part in np.array_split(shares.T, MAX_COLUMNS)]).T


def _header(classes: int, columns: int, cell: int) -> str:
    if classes != columns:
        return f"{classes} classes in {columns} columns".ljust(columns * cell)
    if cell > 1:
        return "".join(f"{c:>{cell}}" for c in range(classes))
    return "".join(str(c).ljust(10) for c in range(0, classes, 10))[:classes]
