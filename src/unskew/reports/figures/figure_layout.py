"""Shared layout of all figures: sizes in pixels, fonts, placeholder colours, and axes without clutter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

NARROW, WIDE = 342, 772  # pixels: column of a phone; of a tablet, or of a page with the caption at the side
TEXT = 12.0
# Placeholder colours, replaced by CSS variables that have a light and a dark value in the page's style sheet.
INK, MUTED, RULE, PAPER = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
SERIES = tuple(f"#0a0c{i:02x}" for i in range(1, 9))
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {c: f"s{i}" for i, c in enumerate(SERIES)}
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
STYLE: dict[Any, Any] = {
    "font.size": TEXT,
    "text.parse_math": False,  # names from users may contain dollar signs
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
    "axes.linewidth": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": TEXT,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "xtick.color": RULE,
    "ytick.color": RULE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "figure.facecolor": "none",
    "figure.dpi": 72,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
    "svg.hashsalt": "unskew",
}
LineStyles = Mapping[str, tuple[str, object]]  # method -> (colour, dashes)
P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Decorator: draw in the report's style without changing matplotlib's global settings."""

    @wraps(draw)
    def with_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return with_style


def line_styles(methods: Sequence[str]) -> dict[str, tuple[str, object]]:
    """A colour per method. The first, the baseline, is grey; when the palette is exhausted the dashes change."""
    size = len(SERIES)
    rest = {m: (SERIES[i % size], DASHES[i // size % len(DASHES)]) for i, m in enumerate(methods[1:])}
    return dict.fromkeys(methods[:1], (MUTED, "-")) | rest


def new_axes(width: float, height: float, left: float, right: float, top: float = 24, bottom: float = 34) -> Axes:
    """New axes in a new figure (`.figure`); all sizes in pixels."""
    figure = Figure(figsize=(width / 72, height / 72))
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    return figure.add_axes(box)


def figure_of(axes: Axes) -> Figure:
    """The figure of the axes, typed as a top-level Figure."""
    return cast(Figure, axes.figure)


def y_title(axes: Axes, text: str) -> None:
    """Title of the vertical axis: horizontal text above the axis, because rotated text is hard to read."""
    width = axes.get_position().x0 * figure_of(axes).get_figwidth() * 72
    axes.annotate(text, (0, 1), (-width, 9), xycoords="axes fraction", textcoords="offset pixels", color=MUTED)


def x_title(axes: Axes, text: str) -> None:
    """Title of the horizontal axis."""
    axes.set_xlabel(text, loc="right", labelpad=1)


def shorten(text: str, max_length: int = 18) -> str:
    """Shorten a name in the middle, since names often differ at the end; the results table shows it in full.

    >>> shorten("fedavg+prox (mu 0.001)")
    'fedavg+prox…0.001)'
    """
    tail = max_length // 3
    return text if len(text) <= max_length else f"{text[: max_length - tail - 1]}…{text[-tail:]}"


def label_width(labels: Sequence[str]) -> float:
    """Pixels for the longest label plus padding."""
    return 12 + 7.0 * max((len(label) for label in labels), default=0)


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions close to the wanted ones, at least a gap apart, and inside the limits if they fit.

    >>> spread_apart([5.0, 5.0, 9.0], 2.0, 0.0, 10.0)
    [4.0, 6.0, 9.0]
    """
    order = np.argsort(wanted, kind="stable")
    at = np.asarray(wanted, float)[order]
    for _ in range(200):  # push neighbours apart until nothing moves
        shortfall = gap - np.diff(at)
        if not (shortfall > 1e-6).any():
            break
        for i in np.flatnonzero(shortfall > 1e-6):
            push = max(gap - (at[i + 1] - at[i]), 0.0) / 2
            at[i], at[i + 1] = at[i] - push, at[i + 1] + push
    at += max(low - at[0], 0.0) if len(at) else 0.0
    at -= max(at[-1] - high, 0.0) if len(at) else 0.0
    placed = np.empty(len(at))
    placed[order] = at
    return [float(value) for value in placed]
