"""A comparison's folder belongs to one comparison at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from unskew.base.errors import UserError

PATIENCE = 20.0  # seconds; processes of a killed comparison need a moment to notice and to save
LOG = "workers.log"


@contextlib.contextmanager
def alone(out: Path) -> Iterator[tuple[int, IO[bytes]]]:
    """The folder's lock and the log of its processes; they inherit the lock, so it holds until all are gone."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("w")
    except OSError as error:
        raise _not_writable(out, error) from error
    with lock:
        _wait_for(lock, out)  # before the log is opened: who goes first may remove it at the end
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
    return UserError(f"{out}: cannot be written ({error.strerror}); choose another --out")


def _wait_for(lock: IO[str], out: Path) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise UserError(
                    f"{out}: another process is writing this comparison; wait for it or choose another --out"
                ) from None
        time.sleep(0.1)
