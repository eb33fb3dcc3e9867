"""Recorded rows in a file: rows of the same key are replaced, others stay, and when they came does not show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.results.atomic_write import write_whole

if TYPE_CHECKING:
    import pandas as pd


def keep(path: Path, fresh: pd.DataFrame, key: list[str], order: list[str]) -> None:
    """The file with these rows in it, sorted by the columns of `order` that it has."""
    import pandas as pd

    rows = fresh.astype(object).where(fresh.notna(), "").astype(str)
    if path.exists():
        old = _read(path, [str(name) for name in rows.columns])
        mine = set(map(tuple, rows[key].to_numpy()))
        rows = pd.concat([old[[tuple(k) not in mine for k in old[key].to_numpy()]], rows])
    by = [[_natural(cell) for cell in line] for line in rows[[name for name in order if name in rows]].to_numpy()]
    rows = rows.iloc[sorted(range(len(rows)), key=by.__getitem__)]
    write_whole(path, rows.to_csv(index=False, lineterminator="\n").encode())


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected a table of recorded rows, found: {error}; move it away") from error
    if (found := [str(name) for name in old.columns]) != columns:
        raise UserError(f"{path}: expected the columns {','.join(columns)}, found {','.join(found)}; move it away")
    return old


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by size and before words."""
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text
