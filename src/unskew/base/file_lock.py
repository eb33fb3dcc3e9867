"""A lock on a folder, so that one process at a time writes to it; the system frees it when the process ends."""

from __future__ import annotations

from pathlib import Path

import filelock

from unskew.base.errors import UserError

NAME = ".lock"


def lock(folder: Path, purpose: str, patience: float = 0.0) -> filelock.BaseFileLock:
    """Create the folder if needed and lock it, or raise a UserError.

    purpose: what another process may be doing there, for the error. patience: seconds to wait for it to end. Processes
    forked later do not hold the lock, so a worker that outlives its parent for a moment does not block a resume.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = filelock.FileLock(folder / NAME, timeout=patience, thread_local=False)
        held.acquire()
    except (filelock.Timeout, RuntimeError) as error:  # RuntimeError: this thread itself holds it
        raise UserError(
            f"{folder}: another process is {purpose}; wait until it ends or choose another --out"
        ) from error
    except OSError as error:
        raise UserError(
            f"{folder}: expected a writable folder, found: {error.strerror or error}; choose another --out"
        ) from error
    return held
