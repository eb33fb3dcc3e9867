"""Saves and loads the audits of a run: a folder for each budget under `audit/attacks/`, all leaks in `audit/leak.csv`.

An audit never replaces one with another budget, because a weaker attack says nothing about a stronger one.
"""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
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
from unskew.audits.verdict import STATES
from unskew.base.environment import commit_hash, device_name, pick_device
from unskew.base.errors import UserError
from unskew.base.tensor_codec import to_bytes
from unskew.results.atomic_write import write_output

COLUMNS = ("method", "defence", "attack", "dataset", "image", "restart", "metric", "space", "value", "seed")
ENVIRONMENT = ("device", "commit")
BUDGET = ("attacker", "restarts", "iterations")
ATTACKS = "attacks"  # the folder with one folder for each budget


def write(audit: Audit, device: str = "auto") -> Path:
    """Save an audit beside those with other budgets; returns the folder of all."""
    folder = audit.run / "audit"
    _move_old(audit.run)
    names = [path.name for path in _folders(audit.run)]
    same = next((each for each in names if each.endswith(audit.budget.identity)), "")
    order = int(same.partition("-")[0]) if same else len(names) + 1
    target = folder / ATTACKS / f"{order:03d}-{audit.budget.identity}"
    environment = {"device": device_name(pick_device(device)), "commit": commit_hash()}
    _write_files(audit, target, environment)
    (folder / "audit.html").unlink(missing_ok=True)  # the page of the earlier audits lacks this one
    write_output(folder / "leak.csv", _join([path / "leak.csv" for path in _folders(audit.run)]))
    return folder


def _write_files(audit: Audit, folder: Path, environment: dict[str, str]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, [*COLUMNS, *ENVIRONMENT, *BUDGET], lineterminator="\n")
    table.writeheader()
    budget = {"attacker": audit.budget.threat.summary, "restarts": audit.budget.restarts}
    for leak in audit.leaks:
        table.writerow(asdict(leak) | environment | budget | {"iterations": audit.budget.iterations_for(leak.attack)})
    picture_files = []
    for pictures in audit.pictures:
        name = _picture_file(pictures)
        write_output(folder / name, to_bytes({"true": pictures.true, "recovered": pictures.recovered}))
        picture_files.append({"file": name} | {k: getattr(pictures, k) for k in _PICTURE_FIELDS})
    settings = asdict(audit.budget) | {"threat": audit.budget.threat.name, "knows": asdict(audit.budget.threat.knows)}
    about: dict[str, Any] = {
        "threat": str(audit.budget.threat),
        "budget": settings,
        "conditions": audit.conditions,
        "notes": audit.notes,
        "pictures": picture_files,
    }
    about |= {"verdicts": [asdict(verdict) for verdict in audit.verdicts]} | environment
    about |= {
        "membership": [_membership_to_dict(result) for result in audit.membership],
        "skipped": [asdict(metric) for metric in audit.skipped],
    }
    write_output(folder / "leak.csv", text.getvalue().encode())
    write_output(folder / "audit.json", json.dumps(about, indent=1).encode())


def _picture_file(pictures: Pictures) -> str:
    return f"{pictures.attack.replace('/', '-')}.safetensors"


def read_all(run: Path) -> list[Audit]:
    """All audits of a run, in the order in which they were first made."""
    old = [run / "audit"] if (run / "audit" / "audit.json").is_file() else []
    return [audit for folder in [*old, *_folders(run)] if (audit := _read_or_warn(run, folder)) is not None]


def _read_or_warn(run: Path, folder: Path) -> Audit | None:
    """One audit; None with a warning if its files are damaged, which must not hide the other audits."""
    try:
        return _read(run, folder)
    except UserError as error:
        warnings.warn(f"left out: {error}", stacklevel=3)
        return None


def _folders(run: Path) -> list[Path]:
    return sorted(path.parent for path in (run / "audit" / ATTACKS).glob("*/audit.json"))


def _move_old(run: Path) -> None:
    """Move the audit of a version that kept only the last one into a folder of its own."""
    folder = run / "audit"
    if not (folder / "audit.json").is_file():
        return
    if (audit := _read_or_warn(run, folder)) is None:
        (folder / "audit.json").rename(folder / "audit.unreadable.json")
        return
    _write_files(audit, folder / ATTACKS / f"001-{audit.budget.identity}", audit.environment)
    (folder / "audit.json").unlink()
    for pictures in audit.pictures:
        (folder / _picture_file(pictures)).unlink(missing_ok=True)


def _join(tables: list[Path]) -> bytes:
    """CSV tables with the same columns below each other."""
    texts = [path.read_text() for path in tables]
    return (texts[0] + "".join(text.partition("\n")[2] for text in texts[1:])).encode()


_PICTURE_FIELDS = ("attack", "images", "method", "defence", "dataset")


def _read(run: Path, folder: Path) -> Audit:
    """Load one audit from its folder."""
    try:
        about = json.loads((folder / "audit.json").read_text())
        with (folder / "leak.csv").open(newline="") as file:
            leaks = [_leak(row) for row in csv.DictReader(file)]
        pictures = [_pictures(folder, entry) for entry in about["pictures"]]
        budget = about["budget"]
        threat = replace(THREATS[budget["threat"]], knows=AttackerKnowledge(**budget.pop("knows")))
        attacks = {name: tuple(budget[name]) for name in ("attacks", "on_shared")}
        settings = Budget(**budget | {"threat": threat} | attacks)
        verdicts = [_verdict(entry) for entry in about["verdicts"]]
        membership = [_membership_from_dict(entry) for entry in about["membership"]]
        skipped = [SkippedMetric(**entry) for entry in about["skipped"]]
        stated = list(map(str, about.get("conditions", [])))  # empty in audits of older versions
        made = {name: str(about[name]) for name in ENVIRONMENT}
        return Audit(run, settings, leaks, pictures, verdicts, about["notes"], membership, skipped, stated, made)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise UserError(f"{folder}: expected the files of an audit, found: {error}; run unskew audit {run}") from error


def _state_of_old_words(state: str, words: str) -> str:
    """The state of a verdict of an older version, which called more things recovered."""
    if state == "recovered" and not re.search(r"[1-9]\d* of \d+ images recovered", words):
        return "leaked" if "sent as they are" in words else "identified"
    if state == "unknown" and "implements no attack" in words:
        return "leaked" if words.startswith("model/samples") else "unattackable"
    return state


def _verdict(entry: dict[str, Any]) -> KindVerdict:
    if entry["state"] not in STATES:
        raise ValueError(f"verdict {entry['state']!r}")
    if "strength" not in entry:
        entry = entry | {"state": _state_of_old_words(entry["state"], entry["words"])}
    lists = {name: tuple(entry.get(name, ())) for name in ("strength", "also")}
    return KindVerdict(**entry | lists)


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
