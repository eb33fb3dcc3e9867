"""What only Unix has is hidden from a new process, which stands for Windows: everything still runs."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

# Imported by every Python process of the test, the workers of a comparison included.
HIDES_UNIX = """
import os, signal, sys
if "HIDE_UNIX" in os.environ:
    import multiprocessing, select, selectors, subprocess  # while their Unix halves are there
    for name in ("fcntl", "resource", "termios", "pwd", "grp"):
        sys.modules[name] = None
    for name in ("fork", "sched_getaffinity", "memfd_create"):
        if hasattr(os, name):
            delattr(os, name)
    for name in ("SIGALRM", "setitimer", "pthread_sigmask"):
        if hasattr(signal, name):
            delattr(signal, name)
    def refuse(*_):
        raise OSError("select of a pipe")
    selectors.DefaultSelector.register = refuse
"""
CLI = ("-W", "ignore", "-m", "unskew.cli")
SMALL = ("rounds=2", "partition.clients=5", "local.epochs=1", "engine.workers=2")


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDES_UNIX)
    return {**os.environ, "HIDE_UNIX": "1", "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


def unskew(environment: dict[str, str], *words: str) -> str:
    done = subprocess.run([sys.executable, *CLI, *words], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_and_a_comparison(windows: dict[str, str], tmp_path: Path) -> None:
    hidden = "import sys, os; sys.exit(hasattr(os, 'fork') or sys.modules.get('fcntl', 1) is not None)"
    assert subprocess.run([sys.executable, "-c", hidden], env=windows, check=False).returncode == 0
    run, table, unix = (tmp_path / name for name in ("run", "table", "unix"))
    unskew(windows, "run", "quick", *SMALL, "--out", str(run))
    unskew(windows, "compare", "quick", *SMALL, "--methods", "fedavg,moon", "--seeds", "0", "--out", str(table))
    unskew({**os.environ}, "run", "quick", *SMALL, "--out", str(unix))
    frames = [pd.read_parquet(folder / "metrics.parquet").drop(columns="run") for folder in (run, unix)]
    pd.testing.assert_frame_equal(*frames)
    assert (table / "table.csv").read_text().count("\n") == 3
