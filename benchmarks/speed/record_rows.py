"""Updates CSV files of measurements."""

from __future__ import annotations

from pathlib import Path

import pandas as pd


def update_csv(path: Path, new: pd.DataFrame, key: list[str]) -> None:
    """Add rows, replacing those with the same key; the file is sorted by the key."""
    if path.exists():
        old = pd.read_csv(path)
        new_keys = set(new[key].astype(str).agg("|".join, axis=1))
        new = pd.concat([old[~old[key].astype(str).agg("|".join, axis=1).isin(new_keys)], new])
    path.parent.mkdir(parents=True, exist_ok=True)
    new.sort_values(key, kind="stable").to_csv(path, index=False)
