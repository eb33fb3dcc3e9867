"""Audits as rows of `results/audit/leak.csv`: a line per number, with the setting and the budget it was found under.

Rows of the same attack on the same setting are replaced, others stay, and the order does not depend on when they came.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.audit.attacks import ATTACKS
from unskew.audit.audit_run import Audit
from unskew.audit.save_audit import COLUMNS, WHERE
from unskew.audit.threat_model import SERVER, ThreatModel
from unskew.base.environment import commit, device_name, pick_device
from unskew.config.experiment import Experiment
from unskew.results.load_run import load
from unskew.results.recorded_csv import keep

if TYPE_CHECKING:
    pass

SETTING = ("model", "batch", "local", "round", "run_seed", "threat", "iterations")
KEY = ["dataset", "method", "defence", *SETTING[:-1], "attack", "seed"]
ORDER = [*KEY, "image", "restart", "metric", "space"]


def record(audit: Audit, folder: Path, device: str = "auto") -> Path:
    """The audit's rows in the table under `folder`; returns the file."""
    import pandas as pd

    where = {"device": device_name(pick_device(device)), "commit": commit()}
    setting = _setting(load(audit.run).config) | {"threat": _threat(audit.budget.threat)}
    lines = [
        asdict(leak)
        | {"value": f"{leak.value:.6g}"}
        | where
        | setting
        | {"iterations": _iterations(audit, leak.attack)}
        for leak in audit.leaks
    ]
    path = folder / "audit" / "leak.csv"
    if lines:
        keep(path, pd.DataFrame(lines)[[*COLUMNS, *WHERE, *SETTING]], KEY, ORDER)
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


def _threat(threat: ThreatModel) -> str:
    """Its name, and what it knows or does not know beyond what the server does."""
    words = [threat.name]
    for field in fields(threat.knows):
        mine = getattr(threat.knows, field.name)
        if mine != getattr(SERVER.knows, field.name):
            words.append(f"{'knows' if mine else 'without'} {field.name}")
    return ", ".join(words)


def _iterations(audit: Audit, attack: str) -> int | str:
    name = attack.partition("/")[0]
    return audit.budget.iterations_of(name) if name in ATTACKS else ""
