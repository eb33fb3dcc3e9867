"""Copy the saved audits of a target's runs into `results/<paper>/leak.csv` (`unskew reproduce --record`).

Attacks nothing itself: `unskew audit` or `figures/feature_leaks.py` did. Runs without an audit are skipped. The column
`defence` has the settings of the method that a run changed, so that FLea with and without its decorrelation are
distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from unskew.audits.save_audit import BUDGET, COLUMNS, ENVIRONMENT
from unskew.comparisons.grid import Cell
from unskew.reproductions.record_runs import changed_settings
from unskew.results.load_run import LoadedRun
from unskew.results.recorded_csv import update_csv

if TYPE_CHECKING:
    import pandas as pd

KEY = ["dataset", "method", "defence", "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(finished: Sequence[tuple[Cell, LoadedRun]], path: Path) -> list[Path]:
    """Add the rows of these runs' audits to the file; rows of the same attack are replaced, others are kept."""
    import pandas as pd

    audits = []
    for cell, run in finished:
        audit = run.folder / "audit" / "leak.csv"
        if audit.is_file():
            rows = _largest_budget(pd.read_csv(audit, dtype=str, keep_default_na=False))
            changed = ";".join(changed_settings(cell.experiment))
            audits.append(rows.assign(defence=changed) if changed else rows)
    if not audits:
        return []
    fresh = pd.concat(audits)[[*COLUMNS, *ENVIRONMENT]].drop_duplicates()
    fresh["value"] = [f"{float(value):.6g}" for value in fresh["value"]]
    update_csv(path, fresh, KEY, ORDER)
    return [path]


def _largest_budget(rows: pd.DataFrame) -> pd.DataFrame:
    """Of several audits the rows of the one that tried each attack hardest."""
    import pandas as pd

    effort = (pd.to_numeric(rows["iterations"], errors="coerce").fillna(0) + 1) * pd.to_numeric(rows["restarts"])
    most = effort.groupby([rows[name] for name in KEY]).transform("max")
    tried = rows[effort == most]
    return tried[~tried.duplicated([name for name in rows if name not in ("value", *BUDGET, *ENVIRONMENT)])]
