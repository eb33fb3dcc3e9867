"""A disk cache of splits, for published ones that take thousands of draws."""

import contextlib
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unskew.data.draw_split import IntArray


@dataclass(frozen=True)
class ClientRowNumbers:
    """Row numbers of each client: ascending by default, in the released order with released draws.

    rows: K arrays [n_k], which contain every training row once unless they are drawn on demand. notes: lines for the
    run header.
    """

    rows: Sequence[IntArray]
    notes: tuple[str, ...] = ()


def load(file: Path, total: int, clients: int) -> ClientRowNumbers | None:
    """A cached split of `total` rows, or None if the file is missing or damaged: drawing again gives the same split."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            rows, sizes, notes = arrays["rows"], arrays["sizes"], arrays["notes"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    if len(sizes) != clients or sizes.sum() != total or not np.array_equal(np.sort(rows), np.arange(total)):
        return None
    return ClientRowNumbers(np.split(rows, np.cumsum(sizes)[:-1]), tuple(map(str, notes)))


def store(file: Path, split: ClientRowNumbers) -> None:
    """Cache a split; if the folder is not writable, the next run draws again."""
    partial = file.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as out:
            sizes = np.array([len(row) for row in split.rows])
            np.savez(out, rows=np.concatenate(split.rows), sizes=sizes, notes=np.array(split.notes, dtype=np.str_))
        partial.replace(file)  # atomic: a concurrent run sees the complete file or none
