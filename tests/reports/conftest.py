"""A few small real runs, shared by all tests."""

from __future__ import annotations

import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import unskew as us
from unskew import cli

CLASSES = ("<script>alert(1)</script>", "tea & milk", "$x_$", "夜")


@pytest.fixture
def unskew(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., Any]]:
    """`unskew("report", ...)` in this process: exit code, output, errors."""
    before = signal.getsignal(signal.SIGTERM)

    def command(*words: object) -> SimpleNamespace:
        monkeypatch.setattr(sys, "argv", ["unskew", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        return SimpleNamespace(code=int(stop.value.code or 0), out=out, err=err)

    yield command
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two methods with two seeds, on data whose class names need escaping."""
    rng, root = np.random.default_rng(0), tmp_path_factory.mktemp("report") / "grid"
    y = np.arange(200) % len(CLASSES)
    x = (rng.normal(size=(200, 1, 4, 4)) + y[:, None, None, None]).astype(np.float32)
    data = us.from_arrays(x, y, classes=CLASSES, name="rows<1>")
    for method in ("fedavg", "fedprox"):
        for seed in (0, 1):
            experiment = us.Experiment(
                method=method,
                seed=seed,
                rounds=4,
                partition={"name": "dirichlet", "clients": 6, "alpha": 0.3},
                model="mlp",
                local={"epochs": 1, "batch": 16},
                engine={"name": "loop", "workers": 1},
            )
            us.run(experiment, out=root / "cells" / f"{method}-{seed}", data=data)
    return root


@pytest.fixture(scope="session")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on these runs."""
    from unskew.reports.report_page import write
    from unskew.reports.report_runs import load_runs

    runs = load_runs(folder, warnings.warn)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return write(runs, tmp_path_factory.mktemp("page") / "report.html", "Tea & <milk>")
