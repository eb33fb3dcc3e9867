"""What a figure of a paper is, and which of its series there are no runs for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

from unskew.base.errors import UserError
from unskew.compare.grid import CompareConfig
from unskew.config import recipe as recipes
from unskew.reproduce.paper_names import stands_for


@dataclass(frozen=True)
class PaperFigure:
    """Its table from finished runs, and its drawing from the table alone, so that a recorded one is drawn again."""

    name: str  # as `unskew reproduce` calls it
    title: str
    data: Callable[[list[Any]], pd.DataFrame]  # of runs played, or of cells planned
    draw: Callable[..., Drawing]  # of the table, with a note on how it was played
    more_than_curves: bool = False  # accuracies by round do not give its table
    planned: bool = False  # from the experiments alone: nothing is played


def recipe_of(name: str) -> str:
    """The recipe that plays a figure.

    >>> recipe_of("fedlmd/figure2")
    'fedlmd-figure2'
    """
    return name.replace("/", "-")


def wanted(name: str) -> tuple[list[str], list[str]]:
    """Labels of the methods and of the settings that a figure's recipe has, without those that stand in for others."""
    compare = CompareConfig.model_validate(recipes.read(recipe_of(name))[2])
    return list(compare.methods), [label for label in compare.settings if not stands_for(label)]


def check_some(frame: pd.DataFrame, name: str) -> None:
    """Refuse a table without rows."""
    if frame.empty:
        raise UserError(f"{name}: expected at least one finished run to draw, found none; unskew reproduce {name}")


def all_of(wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    """What the recipe has in its order, then what else there is: nothing that was played is left out."""
    return list(dict.fromkeys((*wanted, *found)))


def missing(methods: Sequence[str], settings: Sequence[str], found: Collection[tuple[str, str]]) -> str:
    """What of methods x settings was not found, as short as it can be said; nothing if all was.

    >>> missing(["a", "b", "c"], ["s=2", "s=3", "s=5"], [("a", "s=2"), ("a", "s=3"), ("b", "s=2")])
    's=5; c; b at s=3'
    """
    columns = [s for s in settings if any((m, s) in found for m in methods)]
    lines = [m for m in methods if any((m, s) in found for s in columns)]
    words = [", ".join(s for s in settings if s not in columns), ", ".join(m for m in methods if m not in lines)]
    for method in lines:
        lacks = [s for s in columns if (method, s) not in found]
        words.append(f"{method} at {', '.join(lacks)}" if lacks else "")
    return "; ".join(word for word in words if word)


def caption(frame: pd.DataFrame, what: str, absent: str, note: str = "") -> str:
    """Below a figure: data and seeds, how it was played, what is drawn, what is missing. frame: dataset, seed."""
    words = [f"{', '.join(frame['dataset'].unique())}, {_seeds(frame)}.", note, what]
    return " ".join([*(word for word in words if word), *([f"Missing: {absent}."] if absent else [])])


def _seeds(frame: pd.DataFrame) -> str:
    """The number of seeds, or the least and the most where series differ."""
    series = [column for column in ("series", "method", "setting", "option", "value") if column in frame]
    counts = frame.groupby(series)["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    if frame["seed"].nunique() == 1:
        return f"seed {frame['seed'].iloc[0]}"
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"
