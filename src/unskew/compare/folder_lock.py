"""A lock on a comparison's folder, so that only one comparison writes to it at a time; and its workers' log."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unskew.base import file_lock
from unskew.base.errors import UserError

LOCK_TIMEOUT = 20.0  # seconds; a killed comparison, or one of its workers, needs time to notice and to save
LOG = "workers.log"


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[IO[bytes]]:
    """Lock the folder; yields the workers' log, which is deleted at the end if it is empty."""
    # Before the log is opened: the process that held the lock may delete the log at its end.
    lock = file_lock.lock(out, "writing to this folder", LOCK_TIMEOUT)
    try:
        try:
            log = (out / LOG).open("wb")
        except OSError as error:
            raise UserError(
                f"{out / LOG}: expected a writable file, found: {error.strerror}; choose another --out"
            ) from error
        try:
            with log:
                yield log
        finally:
            # Missing if the folder was removed; Windows keeps a file that a killed comparison's worker has open.
            with contextlib.suppress(OSError):
                if not os.path.getsize(out / LOG):
                    (out / LOG).unlink()
    finally:
        lock.release()
