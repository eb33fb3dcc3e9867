"""The page of a comparison has the same labels, numbers and finding as its table and finding.txt."""

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
from unskew.comparisons import grid as grids
from unskew.comparisons import run_grid
from unskew.comparisons.comparison_table import ComparisonTable

from .small_grids import Quiet

RATES = [0.05, 0.2]
TUNED = {"moon": {"local.lr": RATES}}


@pytest.fixture(scope="module")
def recipe_and_cells(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A grid with two candidates of one method, run once with held-out rows."""
    folder = tmp_path_factory.mktemp("page")
    x, y = toys.arrays()
    np.savez(folder / "rows.npz", x=x, y=y)
    data = {"name": str(folder / "rows.npz"), "validation": 0.2}
    path = folder / "grid.yaml"
    compare = {"methods": ["moon", {"plain": "fedavg"}], "seeds": [0, 1]}
    path.write_text(yaml.safe_dump(toys.settings(data=data) | {"compare": compare}))
    run_grid.run(grids.load(str(path), [], {"tune": TUNED}), folder / "out", Quiet(), jobs=1)
    return path, folder / "out"


class Answer(NamedTuple):
    table: ComparisonTable
    finding: str
    page: str
    out: Path


@pytest.fixture(scope="module")
def answer_to(recipe_and_cells: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Answer]:
    """The answer to one of CASES; each runs once."""
    return cache(
        lambda case: run_and_report(recipe_and_cells, tmp_path_factory.mktemp("answers") / "out", **CASES[case])
    )


def run_and_report(recipe_and_cells: tuple[Path, Path], out: Path, breaks: str = "", **options: Any) -> Answer:
    """Table, finding.txt and page of the same cells with other options. breaks: prefix of cells whose run is lost."""
    shutil.copytree(recipe_and_cells[1], out)
    grid = grids.load(str(recipe_and_cells[0]), [], options)
    for cell in grid.cells:
        if breaks and cell.name.startswith(breaks):
            (out / "cells" / cell.name / "checkpoint" / "manifest.json").write_text("{")
    table = run_grid.run(grid, out, Quiet(), jobs=1)
    page = html.unescape(run_grid.write_report(table, out).read_text(encoding="utf-8"))
    return Answer(table, (out / "finding.txt").read_text(encoding="utf-8"), page, out)


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "another metric": {"metric": "best"},
    "selection": {"select": "validation", "tune": TUNED},
    "failed seed": {"breaks": "moon-s1"},
    "failed baseline": {"breaks": "fedavg-s"},
    "candidates": {"tune": TUNED},
    "settings": {"settings": {"short": {}, "same again": {"local.momentum": 0.5}}},
}


@pytest.mark.parametrize("case", CASES)
def test_finding_labels_and_means_equal_those_of_the_table(case: str, answer_to: Callable[[str], Answer]) -> None:
    table, finding, page, _ = answer_to(case)
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


def test_a_selection_shows_the_selected_round_and_no_best_test_accuracy(answer_to: Callable[[str], Answer]) -> None:
    page = answer_to("selection").page
    columns = re.findall(r'<th scope="col">(.*?)</th>', page)
    assert columns[2:4] == ["test at best validation round, %", "best validation, %"]
    assert not {"best, %", "final, %", "mean of last 10, %", "speed-up"} & set(columns)
    assert "test accuracy is reported only at the selected round" in page
    assert "not by these curves" in page
    assert "The highest single value" not in page
    assert "Test accuracy in the round that validation chose: mean difference" in page


def test_a_failed_seed_is_reported_and_its_mean_is_never_bold(answer_to: Callable[[str], Answer]) -> None:
    page = answer_to("failed seed").page
    assert "moon is excluded because 1 of 2 seeds failed." in page
    assert "moon: seed 1 failed: " in page
    (cells,) = re.findall(r'<tr><th scope="row">moon</th>(.*?)</tr>', page, re.DOTALL)
    assert "<b>" not in cells


def test_the_baseline_is_fedavg_whatever_its_label(answer_to: Callable[[str], Answer]) -> None:
    table, _, page, out = answer_to("plain")
    assert table.baseline("").label == "plain"
    assert "Grey: plain." in page
    assert "speed-up" in page
    assert "method − plain" in (out / "table.md").read_text(encoding="utf-8")
