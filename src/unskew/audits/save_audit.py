"""Saves and loads an audit in the run's folder: `audit/leak.csv`, `audit/audit.json` and one image file per attack."""

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

from unskew.audits.audit_run import Audit
from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict, Leak, Pictures
from unskew.audits.membership.membership_attack import MembershipResult
from unskew.audits.membership.roc import Interval, Roc, TruePositiveRate
from unskew.audits.metrics.metric_values import SkippedMetric
from unskew.audits.threat_model import THREATS, AttackerKnowledge
from unskew.base.environment import commit_hash, device_name, pick_device
from unskew.base.errors import UserError
from unskew.base.tensor_codec import to_bytes
from unskew.results.atomic_write import write_output

COLUMNS = ("method", "defence", "attack", "dataset", "image", "restart", "metric", "space", "value", "seed")
ENVIRONMENT = ("device", "commit")


def write(audit: Audit, device: str = "auto") -> Path:
    """Save an audit; returns its folder."""
    folder = audit.run / "audit"
    environment = {"device": device_name(pick_device(device)), "commit": commit_hash()}
    text = io.StringIO()
    table = csv.DictWriter(text, [*COLUMNS, *ENVIRONMENT], lineterminator="\n")
    table.writeheader()
    table.writerows(asdict(leak) | environment for leak in audit.leaks)
    picture_files = []
    for pictures in audit.pictures:
        name = f"{pictures.attack.replace('/', '-')}.safetensors"
        write_output(folder / name, to_bytes({"true": pictures.true, "recovered": pictures.recovered}))
        picture_files.append({"file": name} | {k: getattr(pictures, k) for k in _PICTURE_FIELDS})
    budget = asdict(audit.budget) | {"threat": audit.budget.threat.name, "knows": asdict(audit.budget.threat.knows)}
    about: dict[str, Any] = {
        "threat": str(audit.budget.threat),
        "budget": budget,
        "notes": audit.notes,
        "pictures": picture_files,
    }
    about |= {"verdicts": [asdict(verdict) for verdict in audit.verdicts]} | environment
    about |= {
        "membership": [_membership_to_dict(result) for result in audit.membership],
        "skipped": [asdict(metric) for metric in audit.skipped],
    }
    (folder / "audit.html").unlink(missing_ok=True)  # a page of the previous audit would not match the new files
    write_output(folder / "leak.csv", text.getvalue().encode())
    write_output(folder / "audit.json", json.dumps(about, indent=1).encode())
    return folder


_PICTURE_FIELDS = ("attack", "images", "method", "defence", "dataset")


def read(run: Path) -> Audit:
    """Load the audit of a run."""
    folder = run / "audit"
    try:
        about = json.loads((folder / "audit.json").read_text())
        with (folder / "leak.csv").open(newline="") as file:
            leaks = [_leak(row) for row in csv.DictReader(file)]
        pictures = [_pictures(folder, entry) for entry in about["pictures"]]
        budget = about["budget"]
        threat = replace(THREATS[budget["threat"]], knows=AttackerKnowledge(**budget.pop("knows")))
        attacks = {name: tuple(budget[name]) for name in ("attacks", "on_shared")}
        settings = Budget(**budget | {"threat": threat} | attacks)
        verdicts = [KindVerdict(**entry) for entry in about["verdicts"]]
        membership = [_membership_from_dict(entry) for entry in about["membership"]]
        skipped = [SkippedMetric(**entry) for entry in about["skipped"]]
        return Audit(run, settings, leaks, pictures, verdicts, about["notes"], membership, skipped)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(f"{folder}: expected the files of an audit, found: {error}; run unskew audit {run}") from error


def _membership_to_dict(result: MembershipResult) -> dict[str, Any]:
    roc = result.roc
    rates = [{"false_rate": r.false_rate, "found": asdict(r.tpr), "non_members": r.non_members} for r in roc.rates]
    curve = {"false": roc.false.tolist(), "true": roc.true.tolist(), "auc": asdict(roc.auc), "rates": rates}
    return {"attack": result.attack, "members": roc.members, "non_members": roc.non_members} | curve


def _membership_from_dict(entry: dict) -> MembershipResult:
    false, true = (np.array(entry[name], float) for name in ("false", "true"))
    rates = tuple(
        TruePositiveRate(rate["false_rate"], Interval(**rate["found"]), rate["non_members"]) for rate in entry["rates"]
    )
    roc = Roc(false, true, entry["members"], entry["non_members"], Interval(**entry["auc"]), rates)
    return MembershipResult(entry["attack"], roc)


def _leak(row: dict[str, str]) -> Leak:
    numbers = {"image": int(row["image"]), "restart": int(row["restart"]), "seed": int(row["seed"])}
    return Leak(**{name: row[name] for name in COLUMNS} | numbers | {"value": float(row["value"])})  # type: ignore[arg-type]


def _pictures(folder: Path, entry: dict) -> Pictures:
    tensors: dict[str, torch.Tensor] = safetensors.torch.load_file(folder / Path(entry["file"]).name)
    values = {name: entry[name] for name in _PICTURE_FIELDS} | {"images": tuple(entry["images"])}
    return Pictures(true=tensors["true"], recovered=tensors["recovered"], **values)
