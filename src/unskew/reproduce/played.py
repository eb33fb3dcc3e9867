"""One finished run of a paper's table or figure."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.results.load import Loaded


@dataclass(frozen=True)
class Played:
    """A run and its place in the grid: the labels of its line and its column."""

    method: str
    setting: str
    seed: int
    run: Loaded
