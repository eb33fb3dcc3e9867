"""ROC of membership inference on logarithmic axes, where being sure of a few shows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from unskew.audit.page.page_input import RocCurve, label
from unskew.report.figures.figure_layout import (
    DASHES,
    MUTED,
    NARROW,
    RULE,
    SERIES,
    below,
    heading,
    sheet,
    styled,
    whole,
)

RIGHT = 16


@styled
def roc_curves(curves: Sequence[RocCurve], width: float = NARROW) -> Figure:
    """A line per run and attack; the diagonal is guessing."""
    axes = sheet(width, 300 if width == NARROW else 400, left=46, right=RIGHT)
    most = max(c.found.roc.non_members for c in curves)
    low = 10.0 ** max(-4, min(-2, math.floor(-math.log10(most))))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, 1)
    axes.set_ylim(low, 1.02)
    axes.grid(axis="both")
    axes.spines[["left", "bottom"]].set_visible(False)
    for which in (axes.xaxis, axes.yaxis):
        which.set_minor_locator(NullLocator())
        which.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %" if value > 1.5 * low else ""))
    axes.tick_params(axis="both", length=0)
    axes.plot([low, 1], [low, 1], color=RULE, linewidth=1.5)
    middle = low**0.45
    axes.annotate("guessing", (middle, middle), (6, -12), textcoords="offset pixels", color=MUTED)
    for curve, (colour, dashes) in zip(curves, colours(curves).values()):
        roc = curve.found.roc
        first = int(np.flatnonzero(roc.false <= low)[-1])  # what lies left of the axis is one point on it
        x, y = np.maximum(roc.false[first:], low), np.maximum(roc.true[first:], low / 2)
        axes.step(x, y, where="post", color=colour, linestyle=dashes, gid=f"roc {name_of(curve)}")
    heading(axes, "members found")
    below(axes, "non-members called members")
    return whole(axes)


def name_of(curve: RocCurve) -> str:
    """A run and an attack."""
    return f"{label(curve.method, curve.defence)} · {curve.found.attack}"


def colours(curves: Sequence[RocCurve]) -> dict[str, tuple[str, object]]:
    """A colour per curve in order; beyond the palette the dashes change."""
    size = len(SERIES)
    return {f"{i} {name_of(c)}": (SERIES[i % size], DASHES[i // size % len(DASHES)]) for i, c in enumerate(curves)}
