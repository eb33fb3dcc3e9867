"""A split as a picture in the terminal: clients by classes in shades, sizes as bars. Readable without colour."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from unskew.describe.describe_split import Counts

CLIENTS = 40  # lines; more clients are put together with those that hold the same class most
CLASSES = 100  # columns
BAR = 24
# From the largest share of a client's rows to the smallest: from, shade, colour.
SHADES = ((0.75, "█", "bold red"), (0.5, "▓", "yellow"), (0.25, "▒", "green"), (0.05, "░", "cyan"), (0.0, "·", "dim"))
LEGEND = "shade: share of the client's rows   █ from 75 %  ▓ 50 %  ▒ 25 %  ░ 5 %  · less"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def heat_map(counts: Counts) -> list[Text]:
    """A line for every client, or for every group of alike clients, with its size."""
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
    """How many clients have how many rows."""
    low, high = int(sizes.min()), int(sizes.max())
    if low == high:
        return [f"all {len(sizes)} clients have {low} rows"]
    edges = np.unique(np.linspace(low, high + 1, min(bins, high - low + 1) + 1).astype(int))
    found, _ = np.histogram(sizes, edges)
    width = len(str(high))
    exact = bool((np.diff(edges) == 1).all())
    ends = ["" if exact else f" to {last - 1:>{width}}" for last in edges[1:]]
    return [
        f"{first:>{width}}{end} rows  {bar(count / found.max())} {count} {'client' if count == 1 else 'clients'}"
        for first, end, count in zip(edges[:-1], ends, found)
    ]


def bar(share: float, width: int = BAR) -> str:
    """A bar of eighths.

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
    if len(counts) <= CLIENTS:
        return [f"client {k}" for k in range(len(counts))], shares, sizes.astype(float)
    # Groups of clients alike: a mean over neighbours by number would look like no skew at all.
    main = np.where(sizes > 0, counts.argmax(axis=1), -1)
    kinds = np.unique(main[main >= 0])
    groups = [group for c in kinds for group in _cut(np.flatnonzero(main == c), sizes, len(kinds))]
    labels = [f"{len(group)} with most of {main[group[0]]}" for group in groups]
    empty = np.flatnonzero(main < 0)
    if len(empty):
        groups, labels = [*groups, empty], [*labels, f"{len(empty)} empty"]
    return (
        labels,
        np.array([shares[group].mean(axis=0) for group in groups]),
        np.array([sizes[group].mean().round(1) for group in groups]),
    )


def _cut(group: NDArray[np.int64], sizes: NDArray[np.int64], kinds: int) -> list[NDArray[np.int64]]:
    """A class's clients from large to small, in as many lines as there is room for."""
    order = group[np.argsort(-sizes[group], kind="stable")]
    return np.array_split(order, min(max((CLIENTS - 1) // kinds, 1), len(order)))


def _columns(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Neighbouring classes added up where there are more than fit."""
    if shares.shape[1] <= CLASSES:
        return shares
    return np.array([part.sum(axis=0) for part in np.array_split(shares.T, CLASSES)]).T


def _header(classes: int, columns: int, cell: int) -> str:
    if classes != columns:
        return f"{classes} classes in {columns} columns".ljust(columns * cell)
    if cell > 1:
        return "".join(f"{c:>{cell}}" for c in range(classes))
    return "".join(str(c).ljust(10) for c in range(0, classes, 10))[:classes]
