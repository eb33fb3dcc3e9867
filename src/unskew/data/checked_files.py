"""Find, read and check data files; each file is read once, and every error message names its file."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from unskew.base.errors import UserError

DATASET_FOLDER_HINT = "set the dataset folder with the environment variable UNSKEW_DATA or with --data-dir"


def read_checked(path: Path, *, md5: str | None = None, size: int | None = None, verify: bool = True) -> bytes:
    """Bytes of a file; with `verify`, a file without the official checksum or size is refused, if one is known."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, found: {error.strerror or error}") from error
    if not verify:
        return data
    if size is not None and len(data) != size:
        raise UserError(
            f"{path}: expected {size} bytes, found {len(data)}; "
            "a file whose size differs is truncated or altered; download it again or delete it"
        )
    if md5 is not None:
        actual = hashlib.md5(data, usedforsecurity=False).hexdigest()
        if actual != md5:
            raise UserError(
                f"{path}: expected md5 {md5}, found {actual}; "
                "a file whose checksum differs is truncated or altered; download it again or delete it"
            )
    return data


def missing_files_error(name: str, root: Path, choices: Sequence[Sequence[Path]]) -> UserError:
    """The error for a dataset without a complete layout; choices: the files of each layout, all in one folder."""
    lines = []
    for files in choices:
        absent = ", ".join(file.name for file in files if not file.is_file())
        lines.append(f"  {files[0].parent.relative_to(root)}: {absent}")
    return UserError(
        f"{name}: expected its files under {root}, found no complete copy; missing (one complete folder is enough):\n"
        + "\n".join(lines)
        + f"\n{how_to_get(name, root)}; if you have it elsewhere, {DATASET_FOLDER_HINT}"
    )


def how_to_get(name: str, root: Path) -> str:
    """What to type for a dataset that is missing."""
    from unskew.data.archives import remote_files  # which imports this module

    dataset = "emnist" if name.startswith("emnist-") else name
    if dataset in remote_files():
        return f"to download it, type unskew data download {name} --data-dir {root}"
    return "unskew cannot download it; unskew data says how to get it"


def check_labels(path: Path, y: np.ndarray, classes: int, first: int = 0) -> None:
    """Refuse labels outside first .. first + classes - 1; y: [N]."""
    bad = np.flatnonzero((y < first) | (y >= first + classes))
    if len(bad):
        raise UserError(
            f"{path}: expected labels from {first} to {first + classes - 1}, found {y[bad[0]]} in row {bad[0]}; "
            "the file is altered or belongs to another dataset; download it again"
        )
