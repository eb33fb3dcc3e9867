"""ROC of membership inference on logarithmic axes, which show attacks that are sure of only a few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from unskew.audits.page.page_input import RocCurve, label
from unskew.reports.figures.figure_layout import (
    DASHES,
    MUTED,
    NARROW,
    RULE,
    SERIES,
    figure_of,
    new_axes,
    styled,
    x_title,
    y_title,
)

RIGHT = 16


@styled
def roc_curves(curves: Sequence[RocCurve], width: float = NARROW) -> Figure:
    """A curve per run and attack; the diagonal is guessing."""
    axes = new_axes(width, 300 if width == NARROW else 400, left=46, right=RIGHT)
    most = max(c.result.roc.non_members for c in curves)
    low = 10.0 ** max(-4, min(-2, math.floor(-math.log10(most))))
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, 1)
    axes.set_ylim(low, 1.02)
    axes.grid(axis="both")
    axes.spines[["left", "bottom"]].set_visible(False)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %" if value > 1.5 * low else ""))
    axes.tick_params(axis="both", length=0)
    axes.plot([low, 1], [low, 1], color=RULE, linewidth=1.5)
    middle = low**0.45
    axes.annotate("guessing", (middle, middle), (6, -12), textcoords="offset pixels", color=MUTED)
    for curve, (colour, dashes) in zip(curves, curve_styles(curves).values()):
        roc = curve.result.roc
        first = int(np.flatnonzero(roc.false <= low)[-1])  # all points left of the axis are drawn as one on it
        x, y = np.maximum(roc.false[first:], low), np.maximum(roc.true[first:], low / 2)
        axes.step(x, y, where="post", color=colour, linestyle=dashes, gid=f"roc {curve_name(curve)}")
    y_title(axes, "true positive rate")
    x_title(axes, "false positive rate")
    return figure_of(axes)


def curve_name(curve: RocCurve) -> str:
    """The name of a curve: run and attack."""
    return f"{label(curve.method, curve.defence)} · {curve.result.attack}"


def curve_styles(curves: Sequence[RocCurve]) -> dict[str, tuple[str, object]]:
    """Colour and dashes of each curve; the dashes change once the palette is used up."""
    size = len(SERIES)
    return {f"{i} {curve_name(c)}": (SERIES[i % size], DASHES[i // size % len(DASHES)]) for i, c in enumerate(curves)}
