"""Signals wait while a round is being completed, whatever other threads there are."""

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

pytestmark = pytest.mark.usefixtures("hears_ctrl_c")


def block(number: signal.Signals, finished: list[int]) -> None:
    with uninterrupted():
        os.kill(os.getpid(), number)
        finished.extend(range(1000))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_arrives_after_the_block(number: signal.Signals) -> None:
    """Twenty times with an idle thread that could take the signal: the block always ends first."""
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


def test_ctrl_c_does_not_leave_a_mapped_function_half_way() -> None:
    """A level of vmap that stayed behind would break everything that the process does later."""
    reached = []

    def one(x: torch.Tensor) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        reached.append(1)
        return 2 * x

    with pytest.raises(KeyboardInterrupt):
        vmap(one)(torch.ones(3))
    assert reached == [1]
    assert torch._C._functorch.maybe_current_level() is None  # type: ignore[attr-defined]


def test_a_signal_arrives_also_where_the_block_fails() -> None:
    """Who catches the error and goes on, as after want of memory, would otherwise never hear of it."""

    def failing() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            raise MemoryError

    with pytest.raises(KeyboardInterrupt):
        failing()


def test_a_folder_is_removed_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python closes a folder that it looks through a second time if Ctrl-C comes after the first."""
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    close = os.close

    def interrupted(fd: int) -> None:
        close(fd)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(os, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_folder(tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_table_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within, a library swallows whatever is raised while it compares types."""
    table, write = RowBuffer(("a",)), pd.DataFrame.to_parquet
    table.add([(1,)])

    def swallows(self: pd.DataFrame, **more: Any) -> Any:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        return write(self, **more)

    monkeypatch.setattr(pd.DataFrame, "to_parquet", swallows)
    with pytest.raises(KeyboardInterrupt):
        table.to_bytes()


def test_other_threads_are_left_alone() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [1]


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
from unskew.base.signals import listen

def end():
    raise KeyboardInterrupt

listen(signal.SIGTERM, end)
threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    import slow
    print("whole" if not hasattr(slow, "swallowed") else "half", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("ended", flush=True)
"""


def test_a_request_to_end_inside_an_import_waits_until_it_is_over(tmp_path: Path) -> None:
    """Who imports may swallow it, and then nobody has asked: torch takes a second to be imported."""
    (tmp_path / "slow.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=25)
    assert (done.stdout.split(), done.stderr) == (["whole", "ended"], "")
