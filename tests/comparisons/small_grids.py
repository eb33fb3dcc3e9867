"""Helpers for tests of comparisons: paths, finished cells, worker processes."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from rich.console import Console

from runner.test_killed import children
from unskew.comparisons import process_pool
from unskew.comparisons.progress import TerminalProgress

METHODS = ["fedavg", "fedprox", "scaffold", "moon"]
FILES = ("table.csv", "table.md", "table.tex", "finding.txt")
SMALL = ("rounds=2", "data.validation=0.2", "--methods", "fedavg,moon")


class Quiet(TerminalProgress):
    """Progress without output."""

    def __init__(self) -> None:
        super().__init__(Console(file=io.StringIO()))


def finished(out: Path) -> set[str]:
    return {path.name for path in out.glob("cells/*") if process_pool.is_finished(path)}


def workers() -> list[int]:
    """Worker processes of this process."""
    pids = []
    for pid in children(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if b"unskew.comparisons.grid_worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                pids.append(pid)
    return pids


def cell_folder(out: Path, name: str) -> Path:
    (folder,) = (out / "cells").glob(f"{name}-*")
    return folder
