"""The type of a paper's figure, its caption, and which of its series have no runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Drawing

from unskew.base.errors import UserError
from unskew.comparisons.grid import CompareConfig
from unskew.config import recipe as recipes
from unskew.reproductions.paper_names import stands_for


@dataclass(frozen=True)
class PaperFigure:
    """`data` makes the table from finished runs, `draw` needs only the table, so that a recorded one can be redrawn."""

    name: str  # its name in `unskew reproduce`
    title: str
    data: Callable[[list[Any]], pd.DataFrame]  # from FinishedCells, or from PlannedCells if `planned`
    draw: Callable[..., Drawing]  # from the table, with a note on the runs
    more_than_curves: bool = False  # its table cannot be made from accuracies by round
    planned: bool = False  # its table needs the experiments only: nothing is run


def recipe_of(name: str) -> str:
    """The name of a figure's recipe.

    >>> recipe_of("fedlmd/figure2")
    'fedlmd-figure2'
    """
    return name.replace("/", "-")


def recipe_labels(name: str) -> tuple[list[str], list[str]]:
    """Labels of the methods and settings in a figure's recipe, without the stand-ins for other settings."""
    compare = CompareConfig.model_validate(recipes.read(recipe_of(name))[2])
    return list(compare.methods), [label for label in compare.settings if not stands_for(label)]


def check_not_empty(frame: pd.DataFrame, name: str) -> None:
    """Refuse a table without rows."""
    if frame.empty:
        raise UserError(
            f"{name}: expected at least one finished run to draw, found none; type: unskew reproduce {name}"
        )


def in_recipe_order(labels: Iterable[str], available: Iterable[str]) -> list[str]:
    """The recipe's labels in its order, then all other labels that have runs."""
    return list(dict.fromkeys((*labels, *available)))


def missing_series(methods: Sequence[str], settings: Sequence[str], available: Collection[tuple[str, str]]) -> str:
    """The missing combinations of methods x settings, written as short as possible; empty if none is missing.

    >>> missing_series(["a", "b", "c"], ["s=2", "s=3", "s=5"], [("a", "s=2"), ("a", "s=3"), ("b", "s=2")])
    's=5; c; b at s=3'
    """
    columns = [s for s in settings if any((m, s) in available for m in methods)]
    lines = [m for m in methods if any((m, s) in available for s in columns)]
    words = [", ".join(s for s in settings if s not in columns), ", ".join(m for m in methods if m not in lines)]
    for method in lines:
        absent = [s for s in columns if (method, s) not in available]
        words.append(f"{method} at {', '.join(absent)}" if absent else "")
    return "; ".join(word for word in words if word)


def caption(frame: pd.DataFrame, content: str, absent: str, note: str = "") -> str:
    """The text below a figure: data and seeds, note on the runs, content, what is missing. frame: dataset, seed."""
    words = [f"{', '.join(frame['dataset'].unique())}, {_format_seeds(frame)}.", note, content]
    return " ".join([*(word for word in words if word), *([f"Missing: {absent}."] if absent else [])])


def _format_seeds(frame: pd.DataFrame) -> str:
    """The number of seeds, as a range if series have different numbers."""
    series = [column for column in ("series", "method", "setting", "option", "value") if column in frame]
    counts = frame.groupby(series)["seed"].nunique()
    low, high = int(counts.min()), int(counts.max())
    if frame["seed"].nunique() == 1:
        return f"seed {frame['seed'].iloc[0]}"
    return f"{high} seeds" if low == high else f"{low} to {high} seeds"
