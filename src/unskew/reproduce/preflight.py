"""Whether answers and records can be written, found out before hours are spent on playing."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

from unskew.base.errors import UserError
from unskew.reproduce.record_runs import ACCURACY, CURVES


def check_folder(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be made or written to; nothing is left there."""
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    if not near.is_dir():
        raise UserError(f"{option}: expected a folder, found the file {near}; choose another place")
    try:
        with tempfile.TemporaryFile(dir=near):
            pass
    except OSError as error:
        what = "it cannot be written to" if near == folder else f"{near} cannot be written to, so it cannot be made"
        raise UserError(
            f"{option} {folder}: {what} ({error.strerror or error}); choose a folder of your own. Nothing was played"
        ) from error


def check_record(folder: Path, paper: str) -> None:
    """Refuse a folder that no rows can be added to."""
    check_folder(folder / paper, "--record")
    for name, columns in (("accuracy.csv", ACCURACY), ("curves.csv", CURVES)):
        path = folder / paper / name
        if not path.exists():
            continue
        try:
            with path.open(newline="", encoding="utf-8") as file:
                found = next(csv.reader(file), [])
        except (OSError, ValueError, csv.Error) as error:
            raise UserError(f"--record: {path} cannot be read ({error}); move it away") from error
        if found != columns:
            raise UserError(
                f"--record: expected the columns {','.join(columns)} in {path}, found {','.join(found)}; "
                "move it away or choose another folder. Nothing was played"
            )
