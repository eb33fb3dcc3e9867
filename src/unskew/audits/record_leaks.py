"""Adds audits to `results/audit/leak.csv`: a row per leak value, with the run's settings and the attack's budget.

Rows of the same attack on the same settings are replaced, others stay; rows are sorted, whatever the order of calls.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from unskew.audits.audit_run import Audit
from unskew.audits.save_audit import COLUMNS, ENVIRONMENT
from unskew.base.environment import commit_hash, device_name, pick_device
from unskew.config.experiment import Experiment
from unskew.results.load_run import load
from unskew.results.recorded_csv import update_csv

SETTING = ("model", "batch", "local", "round", "run_seed", "threat", "iterations")
KEY = ["dataset", "method", "defence", *SETTING[:-1], "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(audit: Audit, folder: Path, device: str = "auto") -> Path:
    """Add the audit's rows to the table under `folder`; returns the file."""
    import pandas as pd

    environment = {"device": device_name(pick_device(device)), "commit": commit_hash()}
    setting = _setting(load(audit.run).config) | {"threat": audit.budget.threat.summary}
    lines = [
        asdict(leak)
        | {"value": f"{leak.value:.6g}"}
        | environment
        | setting
        | {"iterations": audit.budget.iterations_for(leak.attack)}
        for leak in audit.leaks
    ]
    path = folder / "audit" / "leak.csv"
    if lines:
        update_csv(path, pd.DataFrame(lines)[[*COLUMNS, *ENVIRONMENT, *SETTING]], KEY, ORDER)
    return path


def _setting(config: Experiment) -> dict[str, Any]:
    local = config.local
    return {
        "model": config.model.name,
        "batch": local.batch,
        "local": f"{local.steps} steps" if local.steps is not None else f"{local.epochs} epochs",
        "round": " ".join(map(str, config.record.rounds)),
        "run_seed": config.seed,
    }
