"""A lock on a comparison's folder, so that only one comparison writes to it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unskew.base.errors import UserError

LOCK_TIMEOUT = 20.0  # seconds; the workers of a killed comparison need time to notice and to save
LOG = "workers.log"


@contextlib.contextmanager
def lock_folder(out: Path) -> Iterator[tuple[int, IO[bytes]]]:
    """Lock the folder; yields the lock and the workers' log. Workers inherit the lock, so it holds until all end."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise _not_writable(out, error) from error
    with lock:
        _acquire(lock, out)  # before the log is opened: the process that held the lock may delete the log at its end
        try:
            log = (out / LOG).open("wb")
        except OSError as error:
            raise _not_writable(out, error) from error
        with log:
            try:
                yield lock.fileno(), log
            finally:
                if not os.fstat(log.fileno()).st_size:
                    (out / LOG).unlink(missing_ok=True)


def _not_writable(out: Path, error: OSError) -> UserError:
    return UserError(f"{out}: expected a writable folder, found: {error.strerror}; choose another --out")


def _acquire(lock: IO[str], out: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{out}: another process is writing to this folder; wait until it ends or choose another --out"
                ) from None
        time.sleep(0.1)
