"""Rows recorded over many runs in a CSV file, in an order that does not depend on when they were added."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from unskew.base.errors import UserError
from unskew.results.atomic_write import write_output

if TYPE_CHECKING:
    import pandas as pd


def update_csv(path: Path, fresh: pd.DataFrame, key: list[str], order: list[str]) -> None:
    """Replace rows with the same key, add the others, and sort by the columns of `order` that exist."""
    import pandas as pd

    rows = fresh.astype(object).where(fresh.notna(), "").astype(str)
    if path.exists():
        old = _read(path, [str(name) for name in rows.columns])
        replaced = set(map(tuple, rows[key].to_numpy()))
        rows = pd.concat([old[[tuple(k) not in replaced for k in old[key].to_numpy()]], rows])
    keys = [[_sort_key(cell) for cell in line] for line in rows[[name for name in order if name in rows]].to_numpy()]
    rows = rows.iloc[sorted(range(len(rows)), key=keys.__getitem__)]
    write_output(path, rows.to_csv(index=False, lineterminator="\n").encode())


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected a table of recorded rows, found: {error}; move the file away") from error
    if not fits([str(name) for name in old.columns], columns):
        names = ",".join(map(str, old.columns))
        raise UserError(f"{path}: expected the columns {','.join(columns)}, found {names}; move the file away")
    return old.reindex(columns=columns, fill_value="")


def fits(actual: list[str], columns: list[str]) -> bool:
    """Whether a table's columns are the expected ones, or those of an older version, which had fewer."""
    return bool(actual) and [name for name in columns if name in actual] == actual


def _sort_key(text: str) -> tuple[int, float, str]:
    """Numbers by size, before words."""
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text
