"""The real page of a comparison says what its table and finding.txt say."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from runner import toys
from unskew.compare import grid as grids
from unskew.compare import run_grid as games
from unskew.compare.comparison_table import ComparisonTable

from .comparisons import Quiet

RATES = [0.05, 0.2]
TUNED = {"moon": {"local.lr": RATES}}


@pytest.fixture(scope="module")
def recipe_and_cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A grid with two candidates of one method, played once with rows held out."""
    folder = tmp_path_factory.mktemp("page")
    x, y = toys.arrays()
    np.savez(folder / "rows.npz", x=x, y=y)
    data = {"name": str(folder / "rows.npz"), "validation": 0.2}
    path = folder / "grid.yaml"
    compare = {"methods": ["moon", {"plain": "fedavg"}], "seeds": [0, 1]}
    path.write_text(yaml.safe_dump(toys.settings(data=data) | {"compare": compare}))
    games.play(grids.load(str(path), [], {"tune": TUNED}), folder / "out", Quiet(), jobs=1)
    return path, folder / "out"


class Answer(NamedTuple):
    table: ComparisonTable
    finding: str
    page: str
    out: Path


@pytest.fixture(scope="module")
def asked(recipe_and_cells: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answer]:
    """What was answered to one of CASES, each played once."""
    return cache(lambda case: compared(recipe_and_cells, tmp_path_factory.mktemp("asked") / "out", **CASES[case]))


def compared(played: tuple[Path, Path], out: Path, breaks: str = "", **options: Any) -> Answer:
    """The table, finding.txt and page of another question to the same cells; `breaks`: a cell whose run is lost."""
    shutil.copytree(played[1], out)
    grid = grids.load(str(played[0]), [], options)
    for cell in grid.cells:
        if breaks and cell.name.startswith(breaks):
            (out / "cells" / cell.name / "checkpoint" / "manifest.json").write_text("{")
    table = games.play(grid, out, Quiet(), jobs=1)
    page = html.unescape(games.report(table, out).read_text(encoding="utf-8"))
    return Answer(table, (out / "finding.txt").read_text(encoding="utf-8"), page, out)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "another metric": {"metric": "best"},
    "selection": {"select": "validation", "tune": TUNED},
    "failed seed": {"breaks": "moon-s1"},
    "failed reference": {"breaks": "fedavg-s"},
    "candidates": {"tune": TUNED},
    "settings": {"settings": {"short": {}, "same again": {"local.momentum": 0.5}}},
}


@pytest.mark.parametrize("case", CASES)
def test_finding_labels_and_means_are_those_of_the_table(case: str, asked: Callable[[str], Answer]) -> None:
    table, finding, page, _ = asked(case)
    headlines = re.findall(r'<p class="headline">(.*?)</p>\s*<p>(.*?)</p>', page)
    assert len(headlines) == len(table.settings)
    for headline, detail in headlines:
        assert f"{headline} {detail}" in finding
    shown = [row for row in table.rows if row.runs]
    rows = re.findall(r'<tr><th scope="row">(.*?)</th><td>(\d)</td>(.*?)</tr>', page, re.DOTALL)
    assert sorted(label for label, *_ in rows) == sorted(row.label for row in shown)
    for row in shown:
        mean = f"{row.spread(table.metric)[0]:.1f}"
        assert any(label == row.label and mean in cells for label, _, cells in rows)


def test_a_selection_shows_the_chosen_round_and_no_best_of_the_test_rows(asked: Callable[[str], Answer]) -> None:
    page = asked("selection").page
    columns = re.findall(r'<th scope="col">(.*?)</th>', page)
    assert columns[2:4] == ["test at validation's best round, %", "best validation, %"]
    assert not {"best, %", "final, %", "last ten, %", "speed-up"} & set(columns)
    assert "of the test set only the accuracy at the chosen round is reported" in page
    assert "not used for the choice" in page
    assert "The highest single value" not in page
    assert "Test accuracy in the round that validation chose: mean difference" in page


def test_a_failed_seed_is_told_on_the_page_and_its_mean_is_never_bold(asked: Callable[[str], Answer]) -> None:
    page = asked("failed seed").page
    assert "moon is left out: 1 of 2 seeds failed." in page
    assert "moon: seed 1 failed: " in page
    (cells,) = re.findall(r'<tr><th scope="row">moon</th>(.*?)</tr>', page, re.DOTALL)
    assert "<b>" not in cells


def test_the_reference_is_fedavg_whatever_it_is_called(asked: Callable[[str], Answer]) -> None:
    table, _, page, out = asked("plain")
    assert table.baseline("").label == "plain"
    assert "Grey is plain." in page
    assert "speed-up" in page
    assert "difference to plain" in (out / "table.md").read_text(encoding="utf-8")
