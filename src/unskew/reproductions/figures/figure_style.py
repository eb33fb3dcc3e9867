"""The style of the papers' figures: the report's fonts and axes with fixed colours, and panels laid out in pixels."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import cycle
from typing import Any, NamedTuple, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from unskew.reports.figures import figure_layout

INK, MUTED, RULE = "#1c1e21", "#646a73", "#dcdcd7"
_COLOURS = {
    figure_layout.INK: INK,
    figure_layout.MUTED: MUTED,
    figure_layout.RULE: RULE,
}  # replace the page's placeholders
STYLE = {
    key: _COLOURS.get(value, value) if isinstance(value, str) else value for key, value in figure_layout.STYLE.items()
}
STYLE |= {"figure.facecolor": "#ffffff"}
DPI = 144  # of a saved picture; positions are counted in 1/72 inch
TOP, BELOW, BETWEEN, LINE = 58, 46, 54, 16  # pixels: titles, last x axis, gap between rows, caption line
DASHED, DOTTED, DASH_DOTTED = (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2))
P = ParamSpec("P")


class LineStyle(NamedTuple):
    """How a method is drawn in every figure."""

    colour: str
    linestyle: Any = "-"
    marker: str = "o"
    width: float = 2.0


LINE_STYLES = {
    "fedavg": LineStyle(INK, marker="s"),
    "fedlmd": LineStyle("#1f77b4", width=2.6),
    "fedlmd-tf": LineStyle("#00805f", DASHED, "^", 2.4),
    "fedntd": LineStyle("#c2570c", marker="D"),
    "fedntd-tf": LineStyle("#8a6d00", DASHED, "v"),
    "fedavg-kd": LineStyle("#a8487e", DASH_DOTTED, "P"),
    "fedls": LineStyle("#5b52b5", DOTTED, "X"),
    "fedrs": LineStyle("#007c91", DASH_DOTTED, "<", 1.6),
    "fednova": LineStyle("#8a4b2d", DOTTED, ">", 1.6),
    "fedprox": LineStyle("#5b52b5", DASHED, "h", 1.6),
    "scaffold": LineStyle("#a8487e", DOTTED, "p", 1.6),
    "moon": LineStyle("#8a6d00", DASH_DOTTED, "8", 1.6),
    "flea": LineStyle("#1f77b4", width=2.6),
    "flea lam2=0": LineStyle("#a8487e"),
    "fedmix": LineStyle("#c2570c", DASHED, "D"),
    "feddata": LineStyle("#00805f", DASH_DOTTED, "^"),
    "feddecorr": LineStyle("#8a6d00", DOTTED, "v", 1.6),
    "fedcurv": LineStyle(MUTED, DASHED, "d", 1.6),
}


def line_styles(methods: Sequence[str]) -> dict[str, LineStyle]:
    """A style for each method; methods without a fixed style cycle through the remaining colours."""
    others = cycle(LineStyle(colour, DASH_DOTTED) for colour in ("#007c91", "#a8487e", "#5b52b5", "#8a6d00"))
    return {name: LINE_STYLES[name] if name in LINE_STYLES else next(others) for name in methods}


def with_figure_style(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in this style and leave matplotlib's global settings unchanged."""

    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return styled


def panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    title: str,
    text: str,
    left: float = 50,
    right: float = 90,
    between: float = BETWEEN,
) -> tuple[Figure, list[Axes]]:
    """A figure with equal axes of `size` pixels, a title and a caption. left, right: each axes' margins for labels."""
    width, height = size
    total_width = columns * (left + width + right)
    lines = textwrap.wrap(text, int(total_width / 5.8), break_on_hyphens=False)
    footer = 10 + LINE * len(lines)
    total_height = TOP + rows * height + (rows - 1) * between + BELOW + footer
    figure = Figure(figsize=(total_width / 72, total_height / 72), dpi=DPI)
    figure.suptitle(title, x=12 / total_width, y=1 - 10 / total_height, ha="left", va="top", size=15, weight="bold")
    figure.supxlabel(
        "\n".join(lines), x=12 / total_width, y=8 / total_height, ha="left", va="bottom", size=11, color=MUTED
    )
    axes = []
    for index in range(rows * columns):
        row, column = divmod(index, columns)
        x, y = column * (left + width + right) + left, total_height - TOP - (row + 1) * height - row * between
        axes.append(figure.add_axes((x / total_width, y / total_height, width / total_width, height / total_height)))
    return figure, axes


def accuracy_axes(axes: Axes, title: str, y_label: str, x_label: str) -> None:
    """Style axes that show accuracy on the y axis, with horizontal grid lines."""
    axes.set_title(title, loc="left", pad=8, color=INK)
    axes.set_ylabel(y_label)
    axes.set_xlabel(x_label)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def share_y_scale(panels: Sequence[Axes]) -> None:
    """One y scale for all panels, so that they can be compared; it does not go below 0."""
    low, high = min(a.get_ylim()[0] for a in panels), max(a.get_ylim()[1] for a in panels)
    for axes in panels:
        axes.set_ylim(max(low, 0.0), high)


def legend_right(axes: Axes) -> None:
    """A legend to the right of a panel, for bars, and for lines whose ends are too close together to be labelled."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.8, fontsize=10)


def label_ends(axes: Axes, ends: dict[str, float], styles: dict[str, LineStyle], height: float) -> None:
    """Write each name at the right end of its line, moved apart if lines end together. height: axes in pixels."""
    low, high = axes.get_ylim()
    gap = min(14.0, height / max(len(ends) - 1, 1)) * (high - low) / height
    heights = figure_layout.spread_apart(list(ends.values()), gap, low, high)
    at_end: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    for name, y in zip(ends, heights):
        axes.annotate(figure_layout.shorten(name), (1, y), (7, 0), color=styles[name].colour, weight="bold", **at_end)
