"""The processes of a comparison: who waits for its folder, and who dies where."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runner.conftest import Command
from runner.test_killed import PATIENCE, is_alive, wait_for
from unskew.compare import grid as grids
from unskew.compare import process_pool
from unskew.compare import run_grid as games
from unskew.compare.folder_lock import alone
from unskew.compare.progress import TerminalProgress

from .comparisons import FILES, SMALL, Quiet, workers

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.usefixtures("short_page"),
]


def test_who_waits_for_a_folder_has_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first removes its empty log when it ends; the log of the second is another file."""
    waits, slept = threading.Event(), time.sleep

    def sleep(seconds: float) -> None:
        waits.set()
        slept(seconds)

    def second() -> None:
        with alone(tmp_path) as (_, log):
            os.write(log.fileno(), b"a traceback")

    monkeypatch.setattr("unskew.compare.folder_lock.time.sleep", sleep)
    with ThreadPoolExecutor(1) as other:
        with alone(tmp_path):
            ended = other.submit(second)
            assert waits.wait(PATIENCE)
        ended.result(PATIENCE)
    assert (tmp_path / "workers.log").read_bytes() == b"a traceback"


def test_a_process_that_dies_between_two_cells_fails_neither(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: list[str] = []

    def kill(self: TerminalProgress, cell: grids.Cell, failure: str | None) -> None:
        over.append(cell.name)
        for worker in workers() if len(over) == 1 else ():
            os.kill(worker, signal.SIGKILL)
            wait_for(lambda pid=worker: not is_alive(pid))

    monkeypatch.setattr(TerminalProgress, "over", kill)
    said = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "1")
    assert said.code == 0, said.out
    assert len(over) == len(set(over)) == 4


def test_a_process_that_never_begins_a_cell_fails_it_at_the_second_try(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool.sys, "executable", shutil.which("false"))
    said = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "2")
    assert (said.code, said.out) == (2, "")
    assert "every run failed:\nits process ended unexpectedly (exit code 1)" in said.err


def test_a_screen_that_breaks_at_the_beginning_is_put_away(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Quiet, "begin", stop)
    monkeypatch.setattr(Quiet, "end", lambda self: ended.append(True))
    with pytest.raises(KeyboardInterrupt):
        games.play(grids.load(str(many)), tmp_path / "out", Quiet())
    assert ended == [True]


def test_old_answers_are_gone_before_the_first_cell_is_played(
    many: Path, played: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*FILES, "report.html"):
        (played / name).write_text("of an older grid")
    monkeypatch.setattr(process_pool, "play", lambda cells, *a, **k: {cell.name: "no data there" for cell in cells})
    assert unskew("compare", many, *SMALL, "--out", played).code == 2
    assert {path.name for path in played.iterdir()} == {".lock", "cells"}
