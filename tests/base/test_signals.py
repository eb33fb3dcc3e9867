"""Signals are deferred while a round is being completed, regardless of other threads."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from unskew.base.signals import remove_folder, uninterrupted
from unskew.base.vmap import vmap
from unskew.results.run_tables import RowBuffer

pytestmark = pytest.mark.usefixtures("ctrl_c_enabled")


def block(number: signal.Signals, finished: list[int]) -> None:
    with uninterrupted():
        os.kill(os.getpid(), number)
        finished.extend(range(1000))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_arrives_after_the_block(number: signal.Signals) -> None:
    """Twenty times with an idle thread that could receive the signal: the block always finishes first."""
    done, idle = threading.Event(), threading.Thread(target=lambda: done.wait(30), daemon=True)
    before = signal.signal(number, signal.default_int_handler)
    idle.start()
    try:
        for _ in range(20):
            finished: list[int] = []
            with pytest.raises(KeyboardInterrupt):
                block(number, finished)
            assert len(finished) == 1000
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        done.set()
        signal.signal(number, before)


def test_ctrl_c_does_not_interrupt_vmap() -> None:
    """A vmap level left on the stack would break everything that the process does later."""
    reached = []

    def one(x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        return 2 * x

    with pytest.raises(KeyboardInterrupt):
        vmap(one)(torch.ones(3))
    assert reached == [1]
    assert torch._C._functorch.maybe_current_level() is None  # type: ignore[attr-defined]


def test_a_signal_arrives_after_a_block_that_fails() -> None:
    """Code that catches the error and continues, as after running out of memory, must still get the signal."""

    def failing() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            raise MemoryError

    with pytest.raises(KeyboardInterrupt):
        failing()


def test_a_folder_is_removed_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ctrl-C right after `rmtree` has closed a folder would otherwise make it close the folder again."""
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    close = os.close

    def interrupted(fd: int) -> None:
        close(fd)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_table_is_written_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library used for writing swallows any exception raised while it compares types."""
    table, write = RowBuffer(("a",)), pd.DataFrame.to_parquet
    table.add([(1,)])

    def swallow(self: pd.DataFrame, **options: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return write(self, **options)

    monkeypatch.setattr(pd.DataFrame, "to_parquet", swallow)
    with pytest.raises(KeyboardInterrupt):
        table.to_bytes()


def test_blocks_also_run_in_other_threads() -> None:
    finished = []

    def work() -> None:
        with uninterrupted():
            finished.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert finished == [1]


SLOW = """
import time
try:
    for _ in range(30):
        time.sleep(0.01)
except BaseException:
    swallowed = True
"""
PROGRAM = """
import os, signal, sys, threading, time
from unskew.base.signals import on_signal

def end():
    raise KeyboardInterrupt

on_signal(signal.SIGTERM, end)
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    import slow
    print("complete" if not hasattr(slow, "swallowed") else "partial", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("ended", flush=True)
"""


def test_a_signal_during_an_import_is_deferred(tmp_path: Path) -> None:
    """The importing code may swallow the exception, and torch takes a second to import."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=25)
    assert (done.stdout.split(), done.stderr) == (["complete", "ended"], "")
