"""The test-only parts, a data folder of their own, and the command line in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml

from unskew import cli
from unskew.core import registry

from . import toys


@pytest.fixture(autouse=True)
def _parts(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name, part in toys.PARTS.items():
        monkeypatch.setitem(registry.PARTS, name, part)
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path_factory.getbasetemp() / "data"))


class Said(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def unskew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """`unskew("run", "quick", ...)` as a person types it, in this process."""
    before = signal.getsignal(signal.SIGTERM)

    def command(*words: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["unskew", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Said(code, *capsys.readouterr())

    yield command
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """The tiny experiment as a file, its data as another."""
    x, y = toys.arrays()
    np.savez(tmp_path / "rows.npz", x=x, y=y)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(toys.settings(data={"name": str(tmp_path / "rows.npz")}, rounds=2)))
    return path


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads data has come too far."""
    monkeypatch.setattr("unskew.data.load", lambda *a, **k: pytest.fail("data were loaded"))
