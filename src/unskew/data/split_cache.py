"""Splits kept on disk, for the published ones that take thousands of draws to come out."""

import contextlib
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unskew.data.draw_split import Rows


@dataclass(frozen=True)
class ClientRowNumbers:
    """Row numbers of each client: ascending by default, in the released order with released draws.

    rows: K arrays [n_k]; together every row of the training set once, unless they are drawn on demand. notes: lines
    for the run header.
    """

    rows: Sequence[Rows]
    notes: tuple[str, ...] = ()


def load(file: Path, total: int, clients: int) -> ClientRowNumbers | None:
    """A kept split of `total` rows, or None: missing or damaged, drawing again is always right."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as kept:
            rows, sizes, notes = kept["rows"], kept["sizes"], kept["notes"]
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    if len(sizes) != clients or sizes.sum() != total or not np.array_equal(np.sort(rows), np.arange(total)):
        return None
    return ClientRowNumbers(np.split(rows, np.cumsum(sizes)[:-1]), tuple(map(str, notes)))


def store(file: Path, parts: ClientRowNumbers) -> None:
    """Keep a split; where the folder cannot be written, the next run draws again."""
    half = file.with_suffix(f".{os.getpid()}.part")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as out:
            sizes = np.array([len(row) for row in parts.rows])
            np.savez(out, rows=np.concatenate(parts.rows), sizes=sizes, notes=np.array(parts.notes, dtype=np.str_))
        half.replace(file)  # a run that starts now sees the whole file or none
