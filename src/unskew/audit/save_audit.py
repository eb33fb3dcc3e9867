"""An audit as files below the run's folder: `audit/leak.csv`, `audit/audit.json`, and the pictures of each attack."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch

from unskew.audit.audit_run import Audit
from unskew.audit.budget import Budget
from unskew.audit.leak import KindVerdict, Leak, Pictures
from unskew.audit.membership.membership_attack import MembershipResult
from unskew.audit.membership.roc import Interval, Roc, TruePositiveRate
from unskew.audit.metrics.metric_values import SkippedMetric
from unskew.audit.threat_model import THREATS, AttackerKnowledge
from unskew.base.environment import commit, device_name, pick_device
from unskew.base.errors import UserError
from unskew.base.tensor_codec import to_bytes
from unskew.results.atomic_write import write_whole

COLUMNS = ("method", "defence", "attack", "dataset", "image", "restart", "metric", "space", "value", "seed")
WHERE = ("device", "commit")


def write(audit: Audit, device: str = "auto") -> Path:
    """The folder of the audit."""
    folder = audit.run / "audit"
    where = {"device": device_name(pick_device(device)), "commit": commit()}
    text = io.StringIO()
    table = csv.DictWriter(text, [*COLUMNS, *WHERE], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(leak) | where for leak in audit.leaks)
    listed = []
    for shown in audit.pictures:
        name = f"{shown.attack.replace('/', '-')}.safetensors"
        write_whole(folder / name, to_bytes({"true": shown.true, "recovered": shown.recovered}))
        listed.append({"file": name} | {k: getattr(shown, k) for k in _TOLD})
    budget = asdict(audit.budget) | {"threat": audit.budget.threat.name, "knows": asdict(audit.budget.threat.knows)}
    about: dict[str, Any] = {
        "threat": str(audit.budget.threat),
        "budget": budget,
        "notes": audit.notes,
        "pictures": listed,
    }
    about |= {"verdicts": [asdict(verdict) for verdict in audit.verdicts]} | where
    about |= {"membership": [_told(one) for one in audit.membership], "skipped": [asdict(one) for one in audit.skipped]}
    (folder / "audit.html").unlink(missing_ok=True)  # the page of an audit whose numbers are no longer here
    write_whole(folder / "leak.csv", text.getvalue().encode())
    write_whole(folder / "audit.json", json.dumps(about, indent=1).encode())
    return folder


_TOLD = ("attack", "images", "method", "defence", "dataset")


def read(run: Path) -> Audit:
    """The audit of a run, as it was written."""
    folder = run / "audit"
    try:
        about = json.loads((folder / "audit.json").read_text())
        with (folder / "leak.csv").open(newline="") as file:
            leaks = [_leak(row) for row in csv.DictReader(file)]
        pictures = [_pictures(folder, one) for one in about["pictures"]]
        budget = about["budget"]
        threat = replace(THREATS[budget["threat"]], knows=AttackerKnowledge(**budget.pop("knows")))
        listed = {name: tuple(budget[name]) for name in ("attacks", "on_shared")}
        settings = Budget(**budget | {"threat": threat} | listed)
        verdicts, members = [KindVerdict(**v) for v in about["verdicts"]], [_member(m) for m in about["membership"]]
        skipped = [SkippedMetric(**one) for one in about["skipped"]]
        return Audit(run, settings, leaks, pictures, verdicts, about["notes"], members, skipped)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(f"{folder}: expected the files of an audit, found: {error}; type unskew audit {run}") from error


def _told(one: MembershipResult) -> dict[str, Any]:
    roc = one.roc
    rates = [asdict(rate) for rate in roc.rates]
    curve = {"false": roc.false.tolist(), "true": roc.true.tolist(), "auc": asdict(roc.auc), "rates": rates}
    return {"attack": one.attack, "members": roc.members, "non_members": roc.non_members} | curve


def _member(one: dict) -> MembershipResult:
    false, true = (np.array(one[name], float) for name in ("false", "true"))
    rates = tuple(TruePositiveRate(**rate | {"found": Interval(**rate["found"])}) for rate in one["rates"])
    roc = Roc(false, true, one["members"], one["non_members"], Interval(**one["auc"]), rates)
    return MembershipResult(one["attack"], roc)


def _leak(row: dict[str, str]) -> Leak:
    numbers = {"image": int(row["image"]), "restart": int(row["restart"]), "seed": int(row["seed"])}
    return Leak(**{name: row[name] for name in COLUMNS} | numbers | {"value": float(row["value"])})  # type: ignore[arg-type]


def _pictures(folder: Path, one: dict) -> Pictures:
    tensors: dict[str, torch.Tensor] = safetensors.torch.load_file(folder / Path(one["file"]).name)
    told = {name: one[name] for name in _TOLD} | {"images": tuple(one["images"])}
    return Pictures(true=tensors["true"], recovered=tensors["recovered"], **told)
