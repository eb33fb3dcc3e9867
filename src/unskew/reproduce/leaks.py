"""What attacks found on the runs of a target, as rows of `results/<paper>/leak.csv`.

Attacked are runs that recorded messages, while a figure is drawn. In the column `defence` stands what a run changed of
its method's settings, so that FLea with and without its decorrelation are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unskew.compare.grid import Cell
from unskew.reproduce.record import changed_settings, natural
from unskew.results.load import Loaded
from unskew.results.whole import write_whole

KEY = ["dataset", "method", "defence", "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(played: Sequence[tuple[Cell, Loaded]], path: Path) -> list[Path]:
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
    if path.exists():
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
        mine = set(map(tuple, fresh[KEY].to_numpy()))
        fresh = pd.concat([old[[tuple(key) not in mine for key in old[KEY].to_numpy()]], fresh])
    places = sorted(range(len(fresh)), key=lambda i: [natural(fresh[name].iloc[i]) for name in ORDER])
    write_whole(path, fresh.iloc[places].to_csv(index=False, lineterminator="\n").encode())
    return [path]
