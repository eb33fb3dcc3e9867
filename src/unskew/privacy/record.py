"""Audits as rows of `results/audit/leak.csv`: a line per number, with the setting and the budget it was found under.

Rows of the same attack on the same setting are replaced, others stay, and the order does not depend on when they came.
"""

from __future__ import annotations

import io
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.environment import commit, device_name, pick_device
from unskew.errors import UserError
from unskew.experiment import Experiment
from unskew.privacy.attacks import ATTACKS
from unskew.privacy.audit import Audit
from unskew.privacy.threat import SERVER, Threat
from unskew.privacy.written import COLUMNS, WHERE
from unskew.results.load import load
from unskew.results.whole import write_whole

if TYPE_CHECKING:
    import pandas as pd

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
        _keep(path, pd.DataFrame(lines)[[*COLUMNS, *WHERE, *SETTING]].astype(str))
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


def _threat(threat: Threat) -> str:
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


def _keep(path: Path, rows: pd.DataFrame) -> None:
    import pandas as pd

    if path.exists():
        old = _read(path, [str(name) for name in rows.columns])
        mine = set(map(tuple, rows[KEY].to_numpy()))
        rows = pd.concat([old[[tuple(key) not in mine for key in old[KEY].to_numpy()]], rows])
    keys = [[_natural(cell) for cell in line] for line in rows[ORDER].to_numpy()]
    rows = rows.iloc[sorted(range(len(rows)), key=keys.__getitem__)]
    text = io.StringIO()
    rows.to_csv(text, index=False, lineterminator="\n")
    write_whole(path, text.getvalue().encode())


def _read(path: Path, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        old = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected a table of recorded leaks, found: {error}; move it away") from error
    if (found := [str(name) for name in old.columns]) != columns:
        raise UserError(f"{path}: expected the columns {','.join(columns)}, found {','.join(found)}; move it away")
    return old


def _natural(text: str) -> tuple[int, float, str]:
    """Numbers by size and before words."""
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text
