"""A service that shares a GPU between processes: when it is started, who is told of it, and that it always ends.

The service is a script that notes what it is asked; only a GPU has a real one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.conftest import Command
from unskew.compare import mps, process_pool
from unskew.compare.mps import sharing

from .comparisons import SMALL

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the service is Linux's")
SERVICE = """#!/bin/sh
if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> {notes}; exit {code}; fi
read said; echo "$said" >> {notes}
"""
Notes = Callable[[], list[str]]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """What the service was asked so far; processes find it, and no other, and get a GPU by it."""
    install(tmp_path, 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(mps.PIPE, raising=False)
    monkeypatch.setattr(mps, "USUAL", tmp_path / "nobody's")
    monkeypatch.setattr(mps, "TRIAL", "")
    return lambda: (tmp_path / "notes").read_text().splitlines() if (tmp_path / "notes").exists() else []


def install(folder: Path, code: int) -> None:
    (folder / mps.CONTROL).write_text(SERVICE.format(notes=folder / "notes", code=code))
    (folder / mps.CONTROL).chmod(0o755)


def until(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.02)
    return true()


def test_it_lives_as_long_as_somebody_holds_it(notes: Notes) -> None:
    with sharing(True) as start:
        assert start.environment is not None
        folder = start.environment[mps.PIPE]
        child = subprocess.Popen(["sleep", "60"], pass_fds=start.held)
    assert notes() == [f"start {folder}"]
    time.sleep(0.3)
    assert notes() == [f"start {folder}"]
    assert Path(folder).is_dir()
    child.kill()
    child.wait()
    assert until(lambda: notes() == [f"start {folder}", "quit"])
    assert until(lambda: not Path(folder).exists())


def test_it_ends_when_a_comparison_is_killed(notes: Notes) -> None:
    program = (
        "import sys, time; from pathlib import Path; from unskew.compare import mps; mps.TRIAL = ''; "
        f"mps.USUAL = Path({str(mps.USUAL)!r})\nwith mps.sharing(True) as start: print(1, flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"1\n"
    assert len(notes()) == 1
    killed.kill()
    killed.wait()
    assert until(lambda: notes()[1:] == ["quit"])


def test_one_that_does_not_work_is_done_without(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "TRIAL", "raise SystemExit(True)")
    with sharing(True) as start:
        assert start == mps.ProcessStart()
    assert until(lambda: notes()[1:] == ["quit"])
    install(tmp_path, 1)
    monkeypatch.setattr(mps, "TRIAL", f"import pathlib; pathlib.Path({str(tmp_path)!r}, 'tried').touch()")
    with sharing(True) as start:
        assert start == mps.ProcessStart()
    assert not (tmp_path / "tried").exists()


@pytest.mark.usefixtures("hears_ctrl_c")
def test_an_interruption_leaves_no_folder(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that comes as soon as the folder is there."""
    make, made = tempfile.mkdtemp, []

    def interrupted(**more: str) -> str:
        made.append(make(dir=tmp_path, **more))
        os.kill(os.getpid(), signal.SIGINT)
        return made[0]

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    with pytest.raises(KeyboardInterrupt), sharing(True):
        pytest.fail("it was not interrupted")
    assert until(lambda: not Path(made[0]).exists())


def test_gpus_are_chosen_once(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service shows the second and the fourth as 0 and 1; who chose among these again would find no 3."""
    monkeypatch.setenv(mps.VISIBLE, "1,3")
    monkeypatch.setattr(mps, "TRIAL", f"import os; raise SystemExit({mps.VISIBLE!r} in os.environ)")
    with sharing(True) as start:
        assert start.environment is not None
        assert mps.VISIBLE not in start.environment
    assert until(lambda: notes()[1:] == ["quit"])


def test_one_that_hangs_is_not_waited_for(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(mps, "SECONDS", 1)
    with sharing(True) as start:
        assert start == mps.ProcessStart()


@pytest.mark.parametrize("why", ["not wanted", "nothing to start", "one is told of", "one is there"])
def test_it_is_not_started(why: str, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "nothing to start":
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    if why == "one is told of":
        monkeypatch.setenv(mps.PIPE, str(tmp_path))
    if why == "one is there":
        mps.USUAL.mkdir()
        (mps.USUAL / "control").touch()
    with sharing(why != "not wanted") as start:
        assert start == mps.ProcessStart()
    assert notes() == []


def test_the_trial_fails_where_there_is_no_gpu() -> None:
    """Here there is no driver at all; a container may have one that does not let a process in."""
    done = subprocess.run([sys.executable, "-c", mps.TRIAL], capture_output=True, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode != 0


@pytest.mark.usefixtures("short_page")
def test_runs_side_by_side_on_a_gpu_share_it(
    many: Path, notes: Notes, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str] | None] = []
    popen = subprocess.Popen

    def noted(command: list[str], **more: object) -> object:
        if "unskew.compare.grid_worker" in command:
            started.append(more["env"])  # type: ignore[arg-type]
        return popen(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(process_pool, "_on_a_gpu", lambda experiments: True)
    monkeypatch.setattr(process_pool.subprocess, "Popen", noted)
    said = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "2")
    assert said.code == 0, said.err
    assert until(lambda: notes()[1:] == ["quit"])
    assert [f"start {env and env[mps.PIPE]}" for env in started] == [notes()[0]] * 2
