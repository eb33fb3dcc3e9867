"""A full disk: exit code 2 and a remedy; the last checkpoint is intact and a resume continues from it."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import unskew as us

from . import toys
from .conftest import Command

CHANGES: dict[str, Any] = {"method": "fedavg+toy-end", "rounds": 2, "checkpoint": toys.EAGER}


def full_from(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> us.UserError | None:
    """Run on a disk with room for `number` files; the error, or None if they are enough."""
    sync, calls = os.fsync, itertools.count()

    def refuse(file: int) -> None:
        if next(calls) >= number:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        try:
            toys.run(folder, **CHANGES)
        except us.UserError as error:
            return error
    return None


def test_full_at_any_write_and_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail at every third write: the first file, a checkpoint, the files at the end."""
    toys.run(tmp_path / "uninterrupted", **CHANGES)
    rounds = []
    for number in itertools.count(0, 3):
        folder = tmp_path / str(number)
        error = full_from(number, folder, monkeypatch)
        if error is None:
            break
        for words in (str(folder), "No space left on device", "free some space", "--resume"):
            assert words in str(error)
        assert not list(folder.rglob("*.tmp")), "a partly written file takes up disk space"
        saved = (folder / "checkpoint" / "manifest.json").exists()
        rounds.append(toys.manifest(folder)["round"] if saved else -1)
        toys.run(folder, resume=True, **CHANGES)
        toys.assert_same(tmp_path / "uninterrupted", folder)
    assert rounds == sorted(rounds)
    assert set(rounds) == {-1, 1, 2}, "nothing saved, round 1 saved, the last round saved"


def test_full_when_ctrl_c_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interruption cannot save its round, but the previous checkpoint remains."""
    toys.run(tmp_path / "uninterrupted", method="moon")
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "run", method="moon", phase=toys.stop_at("plan", 2))

    def refuse(file: int) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(us.UserError, match=r"quota exceeded; the last checkpoint is intact"):
            toys.run(tmp_path / "run", method="moon", resume=True, phase=toys.stop_at("plan", 3))
    assert toys.manifest(tmp_path / "run")["round"] == 1
    toys.run(tmp_path / "run", method="moon", resume=True)
    toys.assert_same(tmp_path / "uninterrupted", tmp_path / "run")


def test_other_os_errors_keep_their_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        toys.run(tmp_path)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits the size of files")
@pytest.mark.parametrize("limit", [1000, 4000])
def test_file_size_limit_in_a_real_process(limit: int, recipe: Path, tmp_path: Path, unskew: Command) -> None:
    """The system refuses a write: at 1000 bytes the first file (643 parameters), at 4000 a table of a checkpoint."""

    def limit_file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    folder = tmp_path / "run"
    command = [sys.executable, "-m", "unskew.cli", "run", str(recipe), "checkpoint.seconds=0", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, preexec_fn=limit_file_size)
    assert (done.returncode, done.stdout) == (2, "")
    assert "File too large" in done.stderr
    assert "--resume" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert unskew("run", recipe, "--out", folder, "--resume").code == 0
    assert unskew("run", recipe, "--out", tmp_path / "uninterrupted").code == 0
    assert (folder / "model.safetensors").read_bytes() == (
        tmp_path / "uninterrupted" / "model.safetensors"
    ).read_bytes()
