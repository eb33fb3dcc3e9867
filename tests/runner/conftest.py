"""Test-only parts, a separate dataset folder, and the command line run in this process."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from comparisons.small_grids import METHODS, Quiet
from unskew import cli
from unskew.comparisons import grid as grids
from unskew.comparisons import run_grid
from unskew.comparisons.comparison_table import ComparisonTable
from unskew.protocol import method_registry

from . import toys


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, part in toys.PARTS.items():
        monkeypatch.setitem(method_registry.PARTS, name, part)
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path_factory.getbasetemp() / "data"))


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., CommandResult]


@pytest.fixture
def unskew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """`unskew("run", "quick", ...)` runs the command in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def command(*words: object) -> CommandResult:
        monkeypatch.setattr(sys, "argv", ["unskew", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return CommandResult(code, *capsys.readouterr())

    yield command
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The tiny experiment as a recipe, with its data in another file."""
    x, y = toys.arrays()
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(toys.settings(data={"name": str(tmp_path / "rows.npz")}, rounds=2)))
    return path


@pytest.fixture
def ctrl_c_enabled() -> Iterator[None]:
    """Enable Ctrl-C, which processes in a shell's background ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if data are loaded."""
    monkeypatch.setattr("unskew.data.load", lambda *a, **k: pytest.fail("data were loaded"))


@pytest.fixture
def short_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the report by one line, because the page has its own tests."""

    def write(table: ComparisonTable, path: Path, printed: object = None, extra: object = None) -> Path:
        path.write_text(
            f"{table.name} {table.metric} {' '.join(r.folder.name for row in table.rows for r in row.runs)}"
        )
        return path

    monkeypatch.setattr("unskew.comparisons.comparison_page.write", write)


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe of four methods and two seeds, with runs long enough to be killed half-way."""
    folder = tmp_path_factory.mktemp("recipe")
    x, y = toys.arrays()
    np.savez(folder / "rows.npz", x=x, y=y)
    path, changes = folder / "many.yaml", {"data": {"name": str(folder / "rows.npz")}, "rounds": 10}
    grid = {"methods": METHODS, "seeds": [0, 1]}
    path.write_text(yaml.safe_dump(toys.settings(**changes, checkpoint=toys.EAGER) | {"compare": grid}))
    return path


@pytest.fixture
def grid_folder(grid_folder_once: Path, tmp_path: Path) -> Path:
    """A finished comparison, a new copy for every test."""
    return shutil.copytree(grid_folder_once, tmp_path / "grid")


@pytest.fixture(scope="session")
def grid_folder_once(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished comparison on a small grid, with rows held out."""
    out = tmp_path_factory.mktemp("grid") / "out"
    grid = grids.load(str(many), ["rounds=2", "data.validation=0.2"], {"methods": ["fedavg", "moon"]})
    assert run_grid.run(grid, out, Quiet(), jobs=1).seeds == (0, 1)
    return out
