"""Files that are complete or absent: written beside their place and moved there in one step."""

from __future__ import annotations

import os
from pathlib import Path

from unskew.base.errors import UserError


def replace_file(path: Path, data: bytes) -> None:
    """The file with these contents, its folder made if need be. What is no file (a pipe, /dev/stdout) is written to."""
    if path.exists() and not path.is_file():
        with path.open("wb") as other:
            other.write(data)
        return
    path = path.resolve()  # a link stays, and what it points to is replaced
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:  # a full disk: at least leave nothing half written on it
        temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes) -> None:
    """The same for a file that a user asked for, who is told what to do where it cannot be written."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise _refused(path, error) from error


def check_writable(path: Path) -> None:
    """The same refusal before long work, whose result is to be written there."""
    if path.exists() and not path.is_file():
        return
    temporary = path.resolve().with_name(path.name + ".tmp")
    try:
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        temporary.unlink()
    except OSError as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: OSError) -> UserError:
    why = error.strerror or error
    return UserError(f"{path}: cannot be written ({why}); free some space or choose another place for it")
