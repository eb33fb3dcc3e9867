"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from unskew.base.errors import UserError
from unskew.results.atomic_write import check_writable, replace_file, write_output


def test_the_folder_is_created_and_no_temporary_file_remains(tmp_path: Path) -> None:
    write_output(tmp_path / "deep" / "a.csv", "±".encode())
    write_output(tmp_path / "deep" / "a.csv", b"new")
    assert [(path.name, path.read_bytes()) for path in (tmp_path / "deep").iterdir()] == [("a.csv", b"new")]


def test_a_full_disk_leaves_the_old_file_and_the_error_suggests_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_bytes(b"old")

    def refuse(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(UserError, match=r"a\.csv: cannot be written \(No space left on device\); free some space"):
        write_output(tmp_path / "a.csv", b"new")
    with pytest.raises(OSError, match="No space"):
        replace_file(tmp_path / "a.csv", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.csv", b"old")]


def test_a_path_is_checked_before_long_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        check_writable(tmp_path / "file" / "a.html")
    check_writable(tmp_path / "new" / "a.html")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("name", ["folder", "file/a.csv"])
def test_a_path_that_cannot_be_a_file_is_refused_by_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=rf"{name}: cannot be written"):
        write_output(tmp_path / name, b"x")


def test_the_target_of_a_link_is_replaced_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_output(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write_output(pipe, b"y")
    reader.join()
    assert received == [b"y"]
