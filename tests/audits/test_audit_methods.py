"""`unskew audit` on every registered method: each kind of artefact is attacked, or the reason why not is reported."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from unskew.audits.audit_run import Audit, audit
from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict
from unskew.audits.threat_model import threat_by_name
from unskew.audits.verdict import CAVEAT, RECOVERED_CONTEXT_ACCURACY, STATES
from unskew.protocol import method_registry

METHODS = [name for name in method_registry.method_names() if not name.startswith("test-")]
CLASSES = 3
ATTACKED = {"weights", "gradients", "control", "features"}  # with rows of three clients, FedMix has no means to attack
IN_CLEAR = {"raw", "labels", "counts"}


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step per iteration of L-BFGS instead of twenty: these tests only check that every attack runs."""
    monkeypatch.setattr("unskew.audits.attacks.lbfgs.INNER", 1)


def dataset() -> us.Dataset:
    """Three clients with three rows of four pixels each."""
    x = np.random.default_rng(0).random((9, 1, 2, 2)).astype("float32")
    y = np.array([0, 1, 1, 2, 0, 2, 0, 0, 1])
    return us.from_arrays(x, y, x_test=x, y_test=y, group=np.repeat(np.arange(3), 3))


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        body = nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Sigmoid())
        return nn.Sequential(body, nn.Sequential(nn.Linear(5, 6), nn.Sigmoid()), nn.Linear(6, CLASSES))


def run_method(folder: Path, method: str, **changes: object) -> Path:
    local = {"epochs": 2, "batch": 3, "lr": 0.1, "momentum": 0.5}
    keys = {"rounds": 2, "local": local, "record": {"rounds": [2]}, "engine": {"name": "loop", "workers": 1}}
    setting = us.Experiment(method=method, partition={"name": "group"}, device="cpu", **keys | changes)
    us.run(setting, out=folder, data=dataset(), model=network())
    return folder


def run_audit(folder: Path, **changes: object) -> Audit:
    budget = Budget(**{"images": 2, "iterations": 1, "restarts": 2, "membership": "none"} | changes)
    return audit(folder, budget, device="cpu", data=dataset(), model=network())


def check_words(verdict: KindVerdict, result: Audit) -> None:
    """A verdict says no more than its data."""
    counted = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) of (\d+) images recovered", verdict.words)]
    if verdict.state == "recovered":
        assert max(hits for hits, _ in counted) > 0, verdict
    else:
        assert not any(hits for hits, _ in counted), verdict
    values = [leak.value for leak in result.leaks if leak.metric == "context accuracy"]
    assert verdict.state != "identified" or max(values) >= RECOVERED_CONTEXT_ACCURACY
    assert ("told apart" in verdict.words) <= any(value >= RECOVERED_CONTEXT_ACCURACY for value in values)
    assert (verdict.state == "resisted") == (CAVEAT in verdict.words)
    none_known = "implements no attack on this kind" in verdict.words
    assert none_known == (verdict.state == "unattackable"), verdict
    assert verdict.state != "unattackable" or not {verdict.kind} & (ATTACKED | IN_CLEAR)
    assert ("not requested" in verdict.words or "no client had any" in verdict.words) == (verdict.state == "unknown")


@pytest.mark.parametrize("method", METHODS)
def test_without_requested_attacks_nothing_is_called_attacked(method: str, tmp_path: Path) -> None:
    """Nor is anything that leaves in clear called safe, nor a kind with attacks one that has none."""
    result = run_audit(run_method(tmp_path, method), attacks=(), on_shared=())
    for verdict in result.verdicts:
        assert verdict.state in ("unknown", "leaked", "unattackable")
        assert verdict.state != "leaked" or verdict.kind in IN_CLEAR
        assert verdict.state != "unattackable" or verdict.kind not in ATTACKED
    weights = next(v for v in result.verdicts if v.kind == "weights")
    assert (weights.state, "no attack on updates was requested" in weights.words) == ("unknown", True)


@pytest.mark.parametrize("method", METHODS)
def test_every_kind_that_clients_sent_has_a_verdict(method: str, tmp_path: Path) -> None:
    result = run_audit(run_method(tmp_path, method))
    ledger = us.load(tmp_path, model=network()).ledger
    kinds = set(ledger[ledger["direction"] == "up"]["kind"])
    assert {verdict.kind for verdict in result.verdicts} == kinds
    by_kind = ledger[ledger["direction"] == "up"].groupby("kind")["bytes"].sum()
    # Clients with three rows have no mean of ten to send, nor a tenth of their rows.
    sent = set(by_kind[by_kind > 0].index)
    of_state = {state: {v.kind for v in result.verdicts if v.state == state} for state in STATES}
    assert of_state["recovered"] | of_state["resisted"] | of_state["identified"] == sent & ATTACKED
    assert of_state["leaked"] == sent & IN_CLEAR
    assert of_state["unattackable"] == sent - ATTACKED - IN_CLEAR
    assert of_state["unknown"] == kinds - sent
    for verdict in result.verdicts:
        check_words(verdict, result)
    # Exposure comes from the ledger instead of an attack.
    on_features = {"decoder", "context", "ledger"} if "features" in kinds else set()
    assert {leak.attack.split("/")[0] for leak in result.leaks} == {"labels", "dlg", "idlg", "ig"} | on_features
    assert all(np.isfinite(leak.value) for leak in result.leaks)


@pytest.mark.parametrize("threat", ["sum-only", "eavesdropper", "fellow-client"])
def test_every_threat_model_gets_a_verdict(threat: str, tmp_path: Path) -> None:
    result = run_audit(run_method(tmp_path, "scaffold"), threat=threat_by_name(threat), attacks=("ig",))
    states = {verdict.kind: verdict.state for verdict in result.verdicts}
    secrets = threat == "fellow-client"
    assert (states["weights"] == "unknown") == secrets
    assert (states["control"] == "unknown") == secrets
    if threat == "sum-only":
        assert {leak.image for leak in result.leaks if leak.image >= 0} == set(range(9))
