"""Small stand-ins for every table and figure, run in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.conftest import unskew
from unskew.base.errors import UserError
from unskew.comparisons import process_pool
from unskew.comparisons.cells import folder_of
from unskew.comparisons.grid import Cell
from unskew.runner.run_experiment import run

__all__ = ["unskew"]

# Digits over five clients. The split is drawn by this package, because the released draws need many rows.
SMALL = (
    "data=digits", "model=mlp", "partition.clients=5", "partition.draws=counts", "participation=0.4",
    "local.epochs=1", "local.batch=64", "engine=loop", "engine.workers=1", "--rounds", "2", "--device", "cpu",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path_factory.getbasetemp() / "data"))


class InProcessPool:
    """Runs cells one after another in this process; cells of the methods in `broken` fail."""

    def __init__(self) -> None:
        self.completed: list[str] = []
        self.broken: set[str] = set()

    def __call__(self, cells: Sequence[Cell], out: Path, *_: Any, name: str, **more: Any) -> dict[str, str]:
        failed = {}
        for cell in {cell.name: cell for cell in cells}.values():
            folder = folder_of(out, cell)
            if cell.method in self.broken:
                failed[cell.name] = "the loss is not finite"
            elif not process_pool.is_finished(folder):
                self.completed.append(f"{cell.method} {cell.setting} {cell.seed}")
                try:
                    run(cell.experiment, out=folder, resume=True, name=name)
                except UserError as error:
                    failed[cell.name] = str(error)
        return failed


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> InProcessPool:
    """Replace the process pool and the page, which have tests of their own, and change to an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_pool, "run_cells", created := InProcessPool())
    monkeypatch.setattr(
        "unskew.comparisons.comparison_page.write", lambda table, path, printed: path.write_text(str(printed))
    )
    return created


@pytest.fixture
def as_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the stand-in as the paper's data and model, so that the paper's numbers are shown."""
    monkeypatch.setattr("unskew.reproductions.compare_to_paper.substitutions", lambda experiment, paper: [])
