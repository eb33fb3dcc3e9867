"""The processes of a comparison: waiting for the folder lock, and workers that die."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runner.conftest import Command
from runner.test_killed import PATIENCE, is_alive, wait_for
from unskew.base import file_lock
from unskew.comparisons import grid as grids
from unskew.comparisons import process_pool, run_grid
from unskew.comparisons.cells import folder_of
from unskew.comparisons.folder_lock import lock_folder
from unskew.comparisons.progress import TerminalProgress

from .small_grids import FILES, SMALL, Quiet, workers

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
    pytest.mark.usefixtures("short_page"),
]


def test_a_comparison_that_waits_for_the_lock_keeps_its_own_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first deletes its empty log at its end; that must not be the log of the second."""
    waits, lock = threading.Event(), file_lock.lock

    def second() -> None:
        with lock_folder(tmp_path) as log:
            os.write(log.fileno(), b"a traceback")

    def lock_and_report(*args: Any) -> Any:
        waits.set()
        return lock(*args)

    with ThreadPoolExecutor(1) as other:
        with lock_folder(tmp_path):
            monkeypatch.setattr(file_lock, "lock", lock_and_report)
            ended = other.submit(second)
            assert waits.wait(PATIENCE)
        ended.result(PATIENCE)
    assert (tmp_path / "workers.log").read_bytes() == b"a traceback"


def test_a_worker_that_dies_between_two_cells_fails_neither(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []

    def kill(self: TerminalProgress, cell: grids.Cell, failure: str | None) -> None:
        ended.append(cell.name)
        for worker in workers() if len(ended) == 1 else ():
            os.kill(worker, signal.SIGKILL)
            wait_for(lambda pid=worker: not is_alive(pid))

    monkeypatch.setattr(TerminalProgress, "cell_ended", kill)
    result = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "1")
    assert result.code == 0, result.out
    assert len(ended) == len(set(ended)) == 4


def test_a_cell_that_no_worker_begins_fails_at_the_second_attempt(
    many: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_pool.sys, "executable", shutil.which("false"))
    result = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "2")
    assert (result.code, result.out) == (2, "")
    assert "every run failed:\nits process ended unexpectedly (exit code 1)" in result.err


def test_the_progress_display_ends_even_if_it_fails_to_begin(
    many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Quiet, "begin", stop)
    monkeypatch.setattr(Quiet, "end", lambda self: ended.append(True))
    with pytest.raises(KeyboardInterrupt):
        run_grid.run(grids.load(str(many)), tmp_path / "out", Quiet())
    assert ended == [True]


def test_old_outputs_stay_if_every_run_fails(
    many: Path, grid_folder: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*FILES, "report.html"):
        (grid_folder / name).write_text("of an older grid")
    monkeypatch.setattr(
        process_pool, "run_cells", lambda cells, *a, **k: {cell.name: "no data there" for cell in cells}
    )
    assert unskew("compare", many, *SMALL, "--out", grid_folder).code == 2
    assert {(grid_folder / name).read_text() for name in (*FILES, "report.html")} == {"of an older grid"}


def test_a_cell_that_another_process_still_saves_is_waited_for(many: Path, tmp_path: Path, unskew: Command) -> None:
    """A worker of a killed comparison saves its run before it ends."""
    out = tmp_path / "out"
    cell = grids.load(str(many), ["rounds=2", "data.validation=0.2"], {"methods": ["fedavg"], "seeds": "0"}).cells[0]
    with lock_folder(out):
        lock = file_lock.lock(folder_of(out, cell), "saving")
    release = threading.Timer(4.0, lock.release)  # a worker needs about two seconds to get there
    release.start()
    result = unskew(
        "compare", many, "rounds=2", "data.validation=0.2", "--methods", "fedavg", "--seeds", "0", "--out", out
    )
    release.join()
    assert result.code == 0, result.err
