"""Atomic file writes: to a temporary file in the same folder, which then replaces the old file in one step."""

from __future__ import annotations

import os
from pathlib import Path

from unskew.base.errors import UserError


def replace_file(path: Path, data: bytes, follow: bool = True) -> None:
    """Replace a file's contents, creating its folder. A pipe or device such as /dev/stdout is written to directly.

    follow: replace the target of a link; False replaces the link, which in a folder of runs may be someone else's.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            stream.write(data)
        return
    path = path.resolve() if follow else path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:  # a full disk: at least free the partly written file
        temporary.unlink(missing_ok=True)
        raise


def write_output(path: Path, data: bytes) -> None:
    """As `replace_file`, with an error for the user if the file cannot be written."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise _cannot_write(path, error) from error


def check_writable(path: Path) -> None:
    """Raise the error of `write_output` already before the long work that computes the contents."""
    if path.exists() and not path.is_file():
        return
    temporary = path.resolve().with_name(path.name + ".tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UserError:
    reason = error.strerror or error
    return UserError(f"{path}: cannot be written ({reason}); free some space or choose another path")
