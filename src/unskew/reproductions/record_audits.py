"""Copy the saved audits of a target's runs into `results/<paper>/leak.csv` (`unskew reproduce --record`).

Attacks nothing itself: `unskew audit` or `figures/feature_leaks.py` did. Runs without an audit are skipped. The column
`defence` has the settings of the method that a run changed, so that FLea with and without its decorrelation are
distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unskew.comparisons.grid import Cell
from unskew.reproductions.record_runs import changed_settings
from unskew.results.load_run import LoadedRun
from unskew.results.recorded_csv import update_csv

KEY = ["dataset", "method", "defence", "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(finished: Sequence[tuple[Cell, LoadedRun]], path: Path) -> list[Path]:
    """Add the rows of these runs' audits to the file; rows of the same attack are replaced, others are kept."""
    import pandas as pd

    audits = []
    for cell, run in finished:
        audit = run.folder / "audit" / "leak.csv"
        if audit.is_file():
            rows = pd.read_csv(audit, dtype=str, keep_default_na=False)
            changed = ";".join(changed_settings(cell.experiment))
            audits.append(rows.assign(defence=changed) if changed else rows)
    if not audits:
        return []
    fresh = pd.concat(audits).drop_duplicates()
    fresh["value"] = [f"{float(value):.6g}" for value in fresh["value"]]
    update_csv(path, fresh, KEY, ORDER)
    return [path]
