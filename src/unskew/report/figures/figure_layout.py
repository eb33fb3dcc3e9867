"""What all figures share: sizes in pixels, type, stand-ins for the page's colours, and axes without clutter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

NARROW, WIDE = 342, 772  # the column of a phone; of a tablet, or of a page with the caption beside it
TEXT = 12.0
# Colours that no figure would use otherwise; the page's style sheet gives each a light and a dark value.
INK, MUTED, RULE, PAPER = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
SERIES = tuple(f"#0a0c{i:02x}" for i in range(1, 9))
VARIABLES = {INK: "ink", MUTED: "muted", RULE: "rule", PAPER: "paper"} | {c: f"s{i}" for i, c in enumerate(SERIES)}
DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
STYLE: dict[Any, Any] = {
    "font.size": TEXT,
    "text.parse_math": False,  # a dollar sign in a user's name is a dollar sign
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
Marks = Mapping[str, tuple[str, object]]  # method -> colour and dashes
P = ParamSpec("P")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the report's style, and leave matplotlib's own settings as they were."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return inside


def marks(methods: Sequence[str]) -> dict[str, tuple[str, object]]:
    """A colour per method; the first, the reference, is grey; beyond the palette the dashes change."""
    size = len(SERIES)
    rest = {m: (SERIES[i % size], DASHES[i // size % len(DASHES)]) for i, m in enumerate(methods[1:])}
    return dict.fromkeys(methods[:1], (MUTED, "-")) | rest


def sheet(width: float, height: float, left: float, right: float, top: float = 24, bottom: float = 34) -> Axes:
    """One pair of axes with margins in pixels; the figure is its `.figure`."""
    figure = Figure(figsize=(width / 72, height / 72))
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    return figure.add_axes(box)


def whole(axes: Axes) -> Figure:
    """The figure that holds the axes."""
    return cast(Figure, axes.figure)


def heading(axes: Axes, text: str) -> None:
    """What the vertical axis shows, above it and level, so that nobody turns the head."""
    width = axes.get_position().x0 * whole(axes).get_figwidth() * 72
    axes.annotate(text, (0, 1), (-width, 9), xycoords="axes fraction", textcoords="offset pixels", color=MUTED)


def below(axes: Axes, text: str) -> None:
    """What the horizontal axis shows."""
    axes.set_xlabel(text, loc="right", labelpad=1)


def short(text: str, most: int = 18) -> str:
    """A name cut in the middle to what a label has room for, since its end may tell it apart; the table has it in full.

    >>> short("fedavg+prox (mu 0.001)")
    'fedavg+prox…0.001)'
    """
    tail = most // 3
    return text if len(text) <= most else f"{text[: most - tail - 1]}…{text[-tail:]}"


def room(labels: Sequence[str]) -> float:
    """Pixels for the longest label, with a little air."""
    return 12 + 7.0 * max((len(label) for label in labels), default=0)


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions close to the wanted ones, at least a gap apart and inside the limits where they fit.

    >>> apart([5.0, 5.0, 9.0], 2.0, 0.0, 10.0)
    [4.0, 6.0, 9.0]
    """
    order = np.argsort(wanted, kind="stable")
    at = np.asarray(wanted, float)[order]
    for _ in range(200):  # push neighbours apart until nothing moves
        lack = gap - np.diff(at)
        if not (lack > 1e-6).any():
            break
        for i in np.flatnonzero(lack > 1e-6):
            push = max(gap - (at[i + 1] - at[i]), 0.0) / 2
            at[i], at[i + 1] = at[i] - push, at[i + 1] + push
    at += max(low - at[0], 0.0) if len(at) else 0.0
    at -= max(at[-1] - high, 0.0) if len(at) else 0.0
    placed = np.empty(len(at))
    placed[order] = at
    return [float(value) for value in placed]
