"""Folders that unskew may write to: new or empty ones, and those with its marker file, which it writes first.

A kill at any moment therefore leaves a folder that is recognised, and a folder with other files is never treated
as one of unskew, whatever their names are.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from unskew.base import file_lock
from unskew.base.errors import UserError
from unskew.base.paths import MARKER
from unskew.base.signals import remove_folder
from unskew.results.atomic_write import replace_file

MAX_SHOWN = 3  # names of other files in an error


def check_owner(folder: Path, kind: str, is_older: Callable[[Path], bool] = lambda folder: False) -> None:
    """Refuse a folder with files that are not ours, or that has another kind; writes nothing.

    is_older: whether a folder without marker is one of this kind that an earlier version wrote.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder, found a file; choose another --out")
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name not in (file_lock.NAME, f"{MARKER}.tmp"))
    except OSError as error:
        raise UserError(
            f"{folder}: expected a readable folder, found: {error.strerror}; choose another --out"
        ) from error
    if MARKER in names:
        if (other := read_marker(folder)["kind"]) != kind:
            raise UserError(f"{folder}: expected the folder of {kind}, found that of {other}; choose another --out")
    elif names and not is_older(folder):
        more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
        raise UserError(
            f"{folder}: expected a new or empty folder, or that of {kind}, found other files "
            f"({', '.join(names[:MAX_SHOWN])}{more}); nothing was changed: choose another --out"
        )


def mark(folder: Path, kind: str, **more: bool) -> None:
    """Write the marker, which makes the folder ours. more: further facts about the folder."""
    replace_file(folder / MARKER, json.dumps({"kind": kind} | more).encode())


def read_marker(folder: Path) -> dict[str, object]:
    """The content of the marker; without one, a folder of no kind."""
    path = folder / MARKER
    if not path.exists():
        return {"kind": ""}
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected JSON, found: {error}; choose another --out") from error
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise UserError(f"{path}: expected the kind of this folder, found {content!r}; choose another --out")
    return content


def discard(folder: Path, created: bool) -> None:
    """Remove what a start that failed wrote. created: whether it created the folder too."""
    if created:
        return remove_folder(folder)
    for name in (MARKER, file_lock.NAME):
        with contextlib.suppress(OSError):  # Windows does not delete a lock that is held
            (folder / name).unlink()
