"""The lock on a folder."""

import os
from pathlib import Path

import pytest

from unskew.base import file_lock
from unskew.base.errors import UserError


def test_a_second_holder_is_refused_until_the_first_releases(tmp_path: Path) -> None:
    first = file_lock.lock(tmp_path / "new", "writing")
    with pytest.raises(UserError, match="new: another process is writing; wait until it ends"):
        file_lock.lock(tmp_path / "new", "writing")
    first.release()
    file_lock.lock(tmp_path / "new", "writing").release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_neither_holds_nor_frees_the_lock(tmp_path: Path) -> None:
    lock = file_lock.lock(tmp_path, "writing")
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        lock.release(force=True)
        os.read(read_end, 1)  # stays alive until the parent has tried both
        os._exit(0)
    try:
        with pytest.raises(UserError):
            file_lock.lock(tmp_path, "writing")
        lock.release()
        file_lock.lock(tmp_path, "writing").release()
    finally:
        os.write(write_end, b"x")
        os.waitpid(child, 0)
        os.close(read_end)
        os.close(write_end)


def test_a_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UserError, match=r"file: expected a writable folder, found: .*choose another --out"):
        file_lock.lock(tmp_path / "file", "writing")
