"""MPS, which shares a GPU between processes: when it starts, which processes use it, and that it always ends.

Here the service is a script that logs its commands; the real one needs a GPU.
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
from unskew.comparisons import mps, process_pool
from unskew.comparisons.mps import mps_service

from .small_grids import SMALL

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="MPS needs Linux")
SERVICE = """#!/bin/sh
if [ "$1" = -d ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> {notes}; exit {code}; fi
read command; echo "$command" >> {notes}
"""
Notes = Callable[[], list[str]]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    """The commands that the service has received; the tests' processes use this service and no other."""
    install(tmp_path, 0)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(mps.PIPE, raising=False)
    monkeypatch.setattr(mps, "DEFAULT_PIPE", tmp_path / "none")
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


def test_the_service_lives_as_long_as_a_process_keeps_it_open(notes: Notes) -> None:
    with mps_service(True) as start:
        assert start.environment is not None
        folder = start.environment[mps.PIPE]
        child = subprocess.Popen(["sleep", "60"], pass_fds=start.keep_open)
    assert notes() == [f"start {folder}"]
    time.sleep(0.3)
    assert notes() == [f"start {folder}"]
    assert Path(folder).is_dir()
    child.kill()
    child.wait()
    assert until(lambda: notes() == [f"start {folder}", "quit"])
    assert until(lambda: not Path(folder).exists())


def test_the_service_ends_when_a_comparison_is_killed(notes: Notes) -> None:
    program = (
        "import sys, time; from pathlib import Path; from unskew.comparisons import mps; mps.TRIAL = ''; "
        f"mps.DEFAULT_PIPE = Path({str(mps.DEFAULT_PIPE)!r})\n"
        "with mps.mps_service(True) as start: print(1, flush=True); time.sleep(60)"
    )
    killed = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert killed.stdout is not None
    assert killed.stdout.readline() == b"1\n"
    assert len(notes()) == 1
    killed.kill()
    killed.wait()
    assert until(lambda: notes()[1:] == ["quit"])


def test_a_service_that_does_not_work_is_not_used(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps, "TRIAL", "raise SystemExit(True)")
    with mps_service(True) as start:
        assert start == mps.ProcessStart()
    assert until(lambda: notes()[1:] == ["quit"])
    install(tmp_path, 1)
    monkeypatch.setattr(mps, "TRIAL", f"import pathlib; pathlib.Path({str(tmp_path)!r}, 'tried').touch()")
    with mps_service(True) as start:
        assert start == mps.ProcessStart()
    assert not (tmp_path / "tried").exists()


@pytest.mark.usefixtures("ctrl_c_enabled")
def test_an_interruption_leaves_no_folder(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even an interruption right after the folder is made."""
    make, made = tempfile.mkdtemp, []

    def interrupted(**more: str) -> str:
        made.append(make(dir=tmp_path, **more))
        os.kill(os.getpid(), signal.SIGINT)
        return made[0]

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    with pytest.raises(KeyboardInterrupt), mps_service(True):
        pytest.fail("it was not interrupted")
    assert until(lambda: not Path(made[0]).exists())


def test_gpus_are_selected_once(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service renumbers GPUs 1 and 3 as 0 and 1; a client that selects again would not find GPU 3."""
    monkeypatch.setenv(mps.VISIBLE, "1,3")
    monkeypatch.setattr(mps, "TRIAL", f"import os; raise SystemExit({mps.VISIBLE!r} in os.environ)")
    with mps_service(True) as start:
        assert start.environment is not None
        assert mps.VISIBLE not in start.environment
    assert until(lambda: notes()[1:] == ["quit"])


def test_a_service_that_hangs_is_given_up(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "TRIAL", "import time; time.sleep(60)")
    monkeypatch.setattr(mps, "TIMEOUT", 1)
    with mps_service(True) as start:
        assert start == mps.ProcessStart()


@pytest.mark.parametrize("why", ["not wanted", "not installed", "variable is set", "already running"])
def test_the_service_is_not_started(why: str, notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "not installed":
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    if why == "variable is set":
        monkeypatch.setenv(mps.PIPE, str(tmp_path))
    if why == "already running":
        mps.DEFAULT_PIPE.mkdir()
        (mps.DEFAULT_PIPE / "control").touch()
    with mps_service(why != "not wanted") as start:
        assert start == mps.ProcessStart()
    assert notes() == []


def test_the_trial_fails_without_a_gpu() -> None:
    """Without any driver; a container may also have a driver that refuses processes."""
    done = subprocess.run([sys.executable, "-c", mps.TRIAL], capture_output=True, env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode != 0


@pytest.mark.usefixtures("short_page")
def test_parallel_runs_on_a_gpu_share_the_service(
    many: Path, notes: Notes, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str] | None] = []
    popen = subprocess.Popen

    def noted(command: list[str], **more: object) -> object:
        if "unskew.comparisons.grid_worker" in command:
            started.append(more["env"])  # type: ignore[arg-type]
        return popen(command, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(process_pool, "_on_a_gpu", lambda experiments: True)
    monkeypatch.setattr(process_pool.subprocess, "Popen", noted)
    result = unskew("compare", many, *SMALL, "--out", tmp_path / "out", "--jobs", "2")
    assert result.code == 0, result.err
    assert until(lambda: notes()[1:] == ["quit"])
    assert [f"start {env and env[mps.PIPE]}" for env in started] == [notes()[0]] * 2
