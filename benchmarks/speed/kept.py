"""Files of measured rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def keep(path: Path, fresh: pd.DataFrame, key: list[str]) -> None:
    """Add rows; those with the same key are replaced, and rows are in the order of the key."""
    if path.exists():
        old = pd.read_csv(path)
        mine = set(fresh[key].astype(str).agg("|".join, axis=1))
        fresh = pd.concat([old[~old[key].astype(str).agg("|".join, axis=1).isin(mine)], fresh])
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh.sort_values(key, kind="stable").to_csv(path, index=False)
