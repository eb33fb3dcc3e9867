"""The content of one section for one setting: figures with captions, notes, numbers, a legend, a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from markupsafe import Markup
from matplotlib.figure import Figure

from unskew.reports.figures.figure_layout import NARROW, VARIABLES, WIDE
from unskew.reports.results_table import ResultsTable
from unskew.reports.svg import inline

TEST_NOT_USED = "Test accuracy by round; rounds and candidates were selected on held-out rows, not by these curves."
Draw = Callable[[float], Figure]


@dataclass(frozen=True)
class FigureSizes:
    """A figure in the width of a phone, optionally also in that of a page, and its caption."""

    narrow: Markup
    wide: Markup | None
    caption: str


@dataclass
class ReportPanel:
    """One section of one setting."""

    setting: str
    drawings: list[FigureSizes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)  # name -> CSS variable
    table: ResultsTable | None = None


class FigureRenderer:
    """Renders figures as SVG with unique ids. metric: the accuracy to rank by."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._keys = count(1)

    def draw(self, figure: Draw, label: str, caption: str, wide: bool = False) -> FigureSizes:
        """Render a figure in the width of a phone and, with `wide`, also in that of a page."""
        narrow = inline(figure(NARROW), label, self._key())
        return FigureSizes(narrow, inline(figure(WIDE), label, self._key()) if wide else None, caption)

    def _key(self) -> str:
        return f"f{next(self._keys)}"


def legend(colours: dict[str, str]) -> dict[str, str]:
    """The CSS variables of placeholder colours."""
    return {name: VARIABLES[colour] for name, colour in colours.items()}
