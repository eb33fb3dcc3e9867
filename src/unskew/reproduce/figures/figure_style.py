"""The look of a paper's figure: the report's type and axes with colours of its own, panels side by side, in pixels."""

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

from unskew.report.figures import figure_layout

INK, MUTED, RULE = "#1c1e21", "#646a73", "#dcdcd7"
_REAL = {figure_layout.INK: INK, figure_layout.MUTED: MUTED, figure_layout.RULE: RULE}  # for the page's stand-ins
STYLE = {
    key: _REAL.get(value, value) if isinstance(value, str) else value for key, value in figure_layout.STYLE.items()
}
STYLE |= {"figure.facecolor": "#ffffff"}
SHARP = 144  # dots per inch of a saved picture, twice what positions are counted in
TOP, BELOW, BETWEEN, LINE = 58, 46, 54, 16  # pixels of titles, of the last axis, between rows, of a caption line
DASHED, DOTTED, MIXED = (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2))
P = ParamSpec("P")


class LineStyle(NamedTuple):
    """How one method is drawn, the same in every figure."""

    colour: str
    dashes: Any = "-"
    sign: str = "o"
    width: float = 2.0


MARKS = {
    "fedavg": LineStyle(INK, sign="s"),
    "fedlmd": LineStyle("#1f77b4", width=2.6),
    "fedlmd-tf": LineStyle("#00805f", DASHED, "^", 2.4),
    "fedntd": LineStyle("#c2570c", sign="D"),
    "fedntd-tf": LineStyle("#8a6d00", DASHED, "v"),
    "fedavg-kd": LineStyle("#a8487e", MIXED, "P"),
    "fedls": LineStyle("#5b52b5", DOTTED, "X"),
    "fedrs": LineStyle("#007c91", MIXED, "<", 1.6),
    "fednova": LineStyle("#8a4b2d", DOTTED, ">", 1.6),
    "fedprox": LineStyle("#5b52b5", DASHED, "h", 1.6),
    "scaffold": LineStyle("#a8487e", DOTTED, "p", 1.6),
    "moon": LineStyle("#8a6d00", MIXED, "8", 1.6),
    "flea": LineStyle("#1f77b4", width=2.6),
    "flea lam2=0": LineStyle("#a8487e"),
    "fedmix": LineStyle("#c2570c", DASHED, "D"),
    "feddata": LineStyle("#00805f", MIXED, "^"),
    "feddecorr": LineStyle("#8a6d00", DOTTED, "v", 1.6),
    "fedcurv": LineStyle(MUTED, DASHED, "d", 1.6),
}


def marks(methods: Sequence[str]) -> dict[str, LineStyle]:
    """A mark for each; what no paper's figure has takes what is left over, in turn."""
    others = cycle(LineStyle(colour, MIXED) for colour in ("#007c91", "#a8487e", "#5b52b5", "#8a6d00"))
    return {name: MARKS[name] if name in MARKS else next(others) for name in methods}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in this look, and leave matplotlib's own settings as they were."""

    @wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return draw(*args, **kwargs)

    return inside


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
    """Axes of one size in pixels, a title above and a caption below. left, right: room beside each for its labels."""
    width, height = size
    wide = columns * (left + width + right)
    lines = textwrap.wrap(text, int(wide / 5.8), break_on_hyphens=False)
    foot = 10 + LINE * len(lines)
    high = TOP + rows * height + (rows - 1) * between + BELOW + foot
    figure = Figure(figsize=(wide / 72, high / 72), dpi=SHARP)
    figure.suptitle(title, x=12 / wide, y=1 - 10 / high, ha="left", va="top", size=15, weight="bold")
    figure.supxlabel("\n".join(lines), x=12 / wide, y=8 / high, ha="left", va="bottom", size=11, color=MUTED)
    axes = []
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        x, y = column * (left + width + right) + left, high - TOP - (row + 1) * height - row * between
        axes.append(figure.add_axes((x / wide, y / high, width / wide, height / high)))
    return figure, axes


def accuracy_axes(axes: Axes, title: str, beside: str, below: str) -> None:
    """Accuracy upwards with level lines, something else to the right."""
    axes.set_title(title, loc="left", pad=8, color=INK)
    axes.set_ylabel(beside)
    axes.set_xlabel(below)
    axes.grid(axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))


def same_height(panels: Sequence[Axes]) -> None:
    """One scale for all panels, so that they can be compared; accuracies are not below 0."""
    low, high = min(a.get_ylim()[0] for a in panels), max(a.get_ylim()[1] for a in panels)
    for axes in panels:
        axes.set_ylim(max(low, 0.0), high)


def legend_beside(axes: Axes) -> None:
    """The names of the lines or bars to the right of a panel, where they end too close or on an uneven scale."""
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.8, fontsize=10)


def label_ends(axes: Axes, ends: dict[str, float], drawn: dict[str, LineStyle], height: float) -> None:
    """Names at the right in their colours, moved apart where lines end together. height: of the axes in pixels."""
    low, high = axes.get_ylim()
    gap = min(14.0, height / max(len(ends) - 1, 1)) * (high - low) / height
    places = figure_layout.apart(list(ends.values()), gap, low, high)
    beside: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center"}
    for name, y in zip(ends, places):
        axes.annotate(figure_layout.short(name), (1, y), (7, 0), color=drawn[name].colour, weight="bold", **beside)
