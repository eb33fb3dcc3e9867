"""What attacks found on the runs of a target, as rows of `results/<paper>/leak.csv`.

Attacked are runs that recorded messages, while a figure is drawn. In the column `defence` stands what a run changed of
its method's settings, so that FLea with and without its decorrelation are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unskew.compare.grid import Cell
from unskew.reproduce.record_runs import changed_settings
from unskew.results.load_run import LoadedRun
from unskew.results.recorded_csv import keep

KEY = ["dataset", "method", "defence", "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(played: Sequence[tuple[Cell, LoadedRun]], path: Path) -> list[Path]:
    """Add the rows of these runs' audits to the file; rows of the same attack are replaced, others stay."""
    import pandas as pd

    found = []
    for cell, run in played:
        audit = run.folder / "audit" / "leak.csv"
        if audit.is_file():
            rows = pd.read_csv(audit, dtype=str, keep_default_na=False)
            changed = ";".join(changed_settings(cell.experiment))
            found.append(rows.assign(defence=changed) if changed else rows)
    if not found:
        return []
    fresh = pd.concat(found).drop_duplicates()
    fresh["value"] = [f"{float(value):.6g}" for value in fresh["value"]]
    keep(path, fresh, KEY, ORDER)
    return [path]
