"""Copy the saved audits of a target's runs into `results/<paper>/leak.csv` (`unskew reproduce --record`).

Attacks nothing itself: `unskew audit` or `figures/feature_leaks.py` did. Runs without an audit are skipped. The column
`defence` has the settings of the method that a run changed, so that FLea with and without its decorrelation are
distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from unskew.audits.audit_run import Audit
from unskew.audits.save_audit import COLUMNS, ENVIRONMENT, read_all
from unskew.audits.threat_model import SERVER
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
        if rows := _strongest_rows(read_all(run.folder)):
            table = pd.DataFrame(rows)
            changed = ";".join(changed_settings(cell.experiment))
            audits.append(table.assign(defence=changed) if changed else table)
    if not audits:
        return []
    fresh = pd.concat(audits)[[*COLUMNS, *ENVIRONMENT]].drop_duplicates()
    fresh["value"] = [f"{float(value):.6g}" for value in fresh["value"]]
    update_csv(path, fresh, KEY, ORDER)
    return [path]


def _strongest_rows(audits: Sequence[Audit]) -> list[dict[str, object]]:
    """Of each attack by the default server the rows of the audit that tried hardest; other attackers are left out."""
    best: dict[tuple[str, int], tuple[float, list[dict[str, object]]]] = {}
    for audit in audits:
        if audit.budget.threat != SERVER:
            continue
        by_attack: dict[tuple[str, int], list[dict[str, object]]] = {}
        for leak in audit.leaks:
            by_attack.setdefault((leak.attack, leak.seed), []).append(asdict(leak) | audit.environment)
        for key, rows in by_attack.items():
            effort = audit.budget.effort(key[0])
            if key not in best or effort > best[key][0]:
                best[key] = effort, rows
    return [row for _, rows in best.values() for row in rows]
