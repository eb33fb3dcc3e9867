"""What a section says about a setting: figures with their captions, notes, numbers, a legend, a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from markupsafe import Markup
from matplotlib.figure import Figure

from unskew.report.figures.figure_layout import NARROW, VARIABLES, WIDE
from unskew.report.results_table import ResultsTable
from unskew.report.svg import inline

NOT_USED = "Test rows by round: not used for the choice of rounds and candidates, which held-out rows made."
Draw = Callable[[float], Figure]


@dataclass(frozen=True)
class FigureSizes:
    """A figure for phones, perhaps another for wide pages, and what to see in it."""

    narrow: Markup
    wide: Markup | None
    caption: str


@dataclass
class ReportPanel:
    """One section, one setting."""

    setting: str
    drawings: list[FigureSizes] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    numbers: list[tuple[str, str]] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)  # name -> variable of the style sheet
    table: ResultsTable | None = None


class FigureRenderer:
    """Draws figures into the page and keeps their ids apart. metric: the accuracy that decides."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._keys = count(1)

    def draw(self, figure: Draw, label: str, caption: str, wide: bool = False) -> FigureSizes:
        """The figure at the width of a phone, and also at that of a page if asked for."""
        narrow = inline(figure(NARROW), label, self._key())
        return FigureSizes(narrow, inline(figure(WIDE), label, self._key()) if wide else None, caption)

    def _key(self) -> str:
        return f"f{next(self._keys)}"


def legend(colours: dict[str, str]) -> dict[str, str]:
    """Stand-in colours as the style sheet names them."""
    return {name: VARIABLES[colour] for name, colour in colours.items()}
