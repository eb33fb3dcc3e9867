"""Real processes and real signals: kill -9 and Ctrl-C, and the workers afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import unskew as us
from unskew.server.inbox import Inbox

from . import toys

METHODS = ("fedavg", "scaffold", "fedavg+toy-share")
ROUNDS = 10
LOCKS: list[str] = []  # lock files that workers had open
PATIENCE = 120.0  # seconds to wait for a process

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """A folder per method whose process, with two workers, was killed after round 2; all run in parallel."""
    folders = {method: tmp_path_factory.mktemp("killed") for method in METHODS}
    driver = str(Path(__file__).with_name("driver.py"))
    processes = {
        method: subprocess.Popen([sys.executable, driver, str(folder), method, str(ROUNDS)], stderr=subprocess.PIPE)
        for method, folder in folders.items()
    }
    try:
        for method, process in processes.items():
            wait_for(lambda m=method: rounds_saved(folders[m]) >= 2, process)
            kill_with_workers(process)
        yield folders
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


def kill_with_workers(process: subprocess.Popen[bytes]) -> None:
    """kill -9 only the main process; its two workers end by themselves."""
    workers = children(process.pid)
    assert len(workers) == 2
    LOCKS.extend(name for pid in workers for name in open_files(pid) if name.endswith(".lock"))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: not any(is_alive(pid) for pid in workers))


@pytest.mark.parametrize("method", METHODS)
def test_kill_9_and_resume(method: str, killed: dict[str, Path], tmp_path: Path) -> None:
    assert 2 <= toys.manifest(killed[method])["round"] < ROUNDS
    toys.run(killed[method], method=method, rounds=ROUNDS, checkpoint=toys.EAGER, resume=True)
    toys.run(tmp_path, method=method, rounds=ROUNDS)
    toys.assert_same(tmp_path, killed[method])
    assert not list(killed[method].rglob("*.tmp"))


@pytest.mark.usefixtures("killed")
def test_workers_do_not_hold_the_lock() -> None:
    """A worker that is still busy after a kill would block the resume."""
    assert LOCKS == []


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_prints_how_to_continue(stop_signal: signal.Signals, recipe: Path, tmp_path: Path) -> None:
    """A job in a shell's background ignores SIGINT and still stops on SIGTERM."""
    overrides = ["rounds=100000", "engine.workers=2", "checkpoint.seconds=0"]
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "unskew.cli", "run", str(recipe), *overrides, "--out", str(folder)]
    # Set explicitly in both cases, because the tests themselves may run in a shell's background.
    sigint_handler = signal.SIG_IGN if stop_signal == signal.SIGTERM else signal.SIG_DFL
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, sigint_handler),
    )
    wait_for(lambda: rounds_saved(folder) >= 2, process)
    process.send_signal(stop_signal)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert "--resume" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert next_round(recipe, overrides, folder) == toys.manifest(folder)["round"] + 1


def next_round(recipe: Path, overrides: list[str], folder: Path) -> int:
    """The first round after a resume."""
    rounds: list[int] = []

    def stop(phase: str, round: int) -> None:
        rounds.append(round)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        us.run(us.load_recipe(str(recipe), overrides)[1], out=folder, resume=True, phase=stop)
    return rounds[0]


def test_interrupted_workers_end_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Client 2 is still training when the run is stopped; its worker has no process left to reply to."""

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Inbox, "receive", interrupt)
    changes = {"method": "fedavg+toy-slow", "partition": {"name": "group"}, "engine": {"name": "loop", "workers": 3}}
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, data=toys.grouped(), **changes)
    assert "Traceback" not in capfd.readouterr().err


def wait_for(happened: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Poll until it has happened; fail if the process ends first."""
    until = time.monotonic() + PATIENCE
    while not happened():
        if process and process.poll() is not None:
            pytest.fail(f"ended with {process.returncode}: {process.communicate()[1]!r}")
        if time.monotonic() > until:
            pytest.fail(f"did not happen within {PATIENCE:.0f} s")
        time.sleep(0.01)


def rounds_saved(folder: Path) -> int:
    return toys.manifest(folder)["round"] if (folder / "checkpoint" / "manifest.json").exists() else -1


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def open_files(pid: int) -> list[str]:
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
