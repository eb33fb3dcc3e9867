"""The papers' figures by target, such as `fedlmd/figure2`: a table from the runs, and a picture from the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

    from unskew.reproduce.played import Played


class Figure(Protocol):
    """How a figure is made."""

    def data(self, played: list[Played]) -> pd.DataFrame: ...

    def draw(self, data: pd.DataFrame) -> Picture: ...


FIGURES: dict[str, Figure] = {}
