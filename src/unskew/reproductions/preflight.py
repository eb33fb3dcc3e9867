"""Check that output and records can be written before hours are spent on runs."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

from unskew.base.errors import UserError
from unskew.reproductions.record_runs import ACCURACY, CURVES, KEY
from unskew.results.recorded_csv import fits


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be created or written to; leaves nothing behind."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UserError(f"{option}: expected a folder, found the file {existing}; choose another folder")
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        problem = "it is not writable" if existing == folder else f"{existing} is not writable, so it cannot be created"
        raise UserError(
            f"{option} {folder}: {problem} ({error.strerror or error}); choose another folder. Nothing was run"
        ) from error


def check_record(folder: Path, paper: str) -> None:
    """Refuse a folder to which rows cannot be added."""
    check_folder(folder / paper, "--record")
    for name, columns in (("accuracy.csv", ACCURACY), ("curves.csv", CURVES)):
        path = folder / paper / name
        if not path.exists():
            continue
        try:
            with path.open(newline="", encoding="utf-8") as file:
                header = next(csv.reader(file), [])
        except (OSError, ValueError, csv.Error) as error:
            raise UserError(f"--record: {path} cannot be read ({error}); move the file away") from error
        if not fits(header, columns) or set(KEY) - set(header):
            raise UserError(
                f"--record: expected the columns {','.join(columns)} in {path}, found {','.join(header)}; "
                "move the file away or choose another folder. Nothing was run"
            )
