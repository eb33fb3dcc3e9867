"""A lock on the folder of a grid, so that only one process writes to it at a time; and its workers' log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unskew.base import file_lock
from unskew.base.errors import UserError
from unskew.base.paths import MARKER
from unskew.results import owned_folder
from unskew.results.run_folder import has_manifest

KIND = "a comparison"
CELLS = "cells"  # the subfolder with all runs
LOCK_TIMEOUT = 20.0  # seconds; a killed comparison, or one of its workers, needs time to notice and to save
LOG = "workers.log"
OUTPUT_FILES = (LOG, "table.csv", "table.md", "table.tex", "finding.txt", "report.html")


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[IO[bytes]]:
    """Lock the folder of a grid; yields the workers' log, which is deleted at the end if it is empty.

    A folder in which no run began, for instance because the dataset is missing, is left as it was.
    """
    check_grid_folder(out)
    created = not out.exists()
    # Before the log is opened: the process that held the lock may delete the log at its end.
    lock = file_lock.lock(out, "writing to this folder", LOCK_TIMEOUT)
    try:
        owned_folder.mark(out, KIND)
        for path in out.iterdir():
            if path.is_symlink() and path.name in OUTPUT_FILES:
                path.unlink()  # its target may be someone else's file
        try:
            with _open_log(out) as log:
                yield log
        finally:
            _remove_empty(out)
            if {path.name for path in out.iterdir()} <= {MARKER, file_lock.NAME}:
                owned_folder.discard(out, created)
    finally:
        lock.release()


def check_grid_folder(out: Path) -> None:
    """Refuse a folder that is neither empty nor that of a grid."""
    owned_folder.check_owner(out, KIND, lambda folder: any(map(has_manifest, folder.glob(f"{CELLS}/*"))))


def _open_log(out: Path) -> IO[bytes]:
    try:
        return (out / LOG).open("wb")
    except OSError as error:
        raise UserError(f"{out}: expected a writable folder, found: {error.strerror}; choose another --out") from error


def _remove_empty(out: Path) -> None:
    # Windows keeps a log that a killed comparison's worker has open.
    with contextlib.suppress(OSError):
        if not os.path.getsize(out / LOG):
            (out / LOG).unlink()
    with contextlib.suppress(OSError):  # not empty
        (out / CELLS).rmdir()
