"""Attacks on data shared row by row: a decoder on features, the context attack, means and raw rows as sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import unskew as us
from unskew.audits import save_audit
from unskew.audits.attacks import context_attack as context_attack
from unskew.audits.attacks import feature_decoder as feature_decoder
from unskew.audits.audit_run import Audit, audit
from unskew.audits.budget import Budget
from unskew.audits.page.metric_titles import column_title
from unskew.audits.page_of_audits import write_page
from unskew.audits.replayed_run import replay_run
from unskew.audits.shared_data import shared_artefacts
from unskew.audits.threat_model import SERVER, threat_by_name
from unskew.audits.verdict import Attempt, verdicts
from unskew.results import recorded_messages
from unskew.runner.prepare_run import read_data

QUICK = {"attacks": (), "images": 20, "iterations": 400, "membership": "none"}


def network() -> nn.Sequential:
    """A network whose first block copies the image into one of its four channels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head, tail = nn.Conv2d(1, 4, 1), nn.Sequential(nn.Flatten(), nn.Linear(4 * 64, 10))
    with torch.no_grad():
        head.weight[2], head.bias[2] = 1.0, 0.0
    return nn.Sequential(head, tail)


def run_sharing(out: Path, method: object, **changes: object) -> Path:
    keys = {"rounds": 1, "participation": 0.2, "partition": {"name": "iid", "clients": 20}, "device": "cpu"}
    keys |= {"local": {"epochs": 1, "batch": 32, "lr": 1e-6}, "record": {"rounds": [1]}}
    us.run(
        us.Experiment(method=method, data="digits", engine={"name": "loop", "workers": 1}, **keys | changes),
        out=out, model=network(),
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def flea(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_sharing(tmp_path_factory.mktemp("runs") / "flea", "flea")


def run_audit(run: Path, **changes: object) -> Audit:
    return audit(run, Budget(**QUICK | changes), device="cpu", model=network())


def leak_values(result: Audit, attack: str, metric: str, space: str) -> list[float]:
    selected = [leak for leak in result.leaks if (leak.metric, leak.space) == (metric, space)]
    return [leak.value for leak in selected if leak.attack.startswith(attack)]


def test_the_decoder_has_the_papers_layers_and_the_shape_of_rows() -> None:
    net = feature_decoder.build_decoder((16, 32, 32), (3, 32, 32))
    assert [tuple(p.shape) for p in net.parameters() if p.ndim == 4] == [
        (32, 16, 1, 1), (32, 32, 3, 3), (32, 32, 3, 3), (3, 32, 1, 1),
    ]  # fmt: skip
    assert not any(isinstance(layer, nn.ReLU) for layer in net)
    assert net(torch.zeros(2, 16, 32, 32)).shape == (2, 3, 32, 32)
    assert feature_decoder.build_decoder((16, 16, 86), (2, 64, 344))(torch.zeros(1, 16, 16, 86)).shape == (
        1,
        2,
        64,
        344,
    )
    assert feature_decoder.build_decoder((5,), (1, 2, 2))(torch.zeros(3, 5)).shape == (3, 1, 2, 2)
    seen = torch.zeros(1, 128, 20, 7, requires_grad=True)  # wider than the rows: every column must be used
    result = feature_decoder.build_decoder((128, 20, 7), (1, 128, 3))(seen)
    assert result.shape == (1, 1, 128, 3)
    result.sum().backward()
    assert (seen.grad.abs().sum((0, 1, 2)) > 0).all()


def test_the_decoder_recovers_images_from_features_that_contain_them(
    flea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_decoder, "BATCH", 32)
    monkeypatch.setattr(feature_decoder, "RATE", 5e-3)
    result = run_audit(flea, on_shared=("decoder",))
    errors = leak_values(result, "decoder", "mse", "unit")
    assert len(errors) == 20
    assert sum(errors) / len(errors) < 1e-4
    verdict = next(v for v in result.verdicts if v.kind == "features")
    assert verdict.state == "recovered"
    assert "decoder: MSE 0.0000 after 400 steps on" in verdict.words
    trace = leak_values(result, "decoder", "matching loss", "training, round-1")
    assert len(trace) == 20
    assert trace[0] > 10 * trace[-1]


def test_pictures_are_the_rows_that_were_shared(flea: Path) -> None:
    (shown,) = run_audit(flea, on_shared=("decoder",), iterations=2).pictures
    rows = read_data(us.load(flea, model=network()).config, None).train.x[list(shown.images)]
    assert torch.allclose(shown.true, rows, atol=1e-6)


def test_the_attacker_trains_on_no_row_of_the_attacked_clients(flea: Path) -> None:
    replayed = replay_run(us.load(flea, model=network()), "cpu", model=network())
    (one,) = shared_artefacts(replayed, SERVER, recorded_messages.read(flea), "flea", "features", 20)
    index, behind = replayed.context.client_rows.index, set(one.rows.flatten().tolist())
    attacked = [set(index[k].tolist()) for k in range(20) if behind & set(index[k].tolist())]
    assert 0 < len(attacked) < 20
    assert set(one.attacker_rows(0).tolist()) == set(range(len(replayed.context.client_rows.x))) - set.union(*attacked)


def test_context_accuracy_grows_with_the_number_of_items(flea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_attack, "SIZES", (4, 60, 600))
    result = run_audit(flea, on_shared=("context",), iterations=150)
    few, some, many = (leak_values(result, "context", "context accuracy", f"{n} items")[0] for n in (4, 60, 600))
    assert many > 95
    assert few < some <= many
    with_decoder = run_audit(flea, iterations=150)
    for one, state in ((result, "identified"), (with_decoder, "recovered")):
        verdict = next(v for v in one.verdicts if v.kind == "features")
        assert verdict.state == state
        assert "a square stamped on half of the images was told apart in" in verdict.words
    assert "20 of 20 images recovered" in verdict.words
    # A decoder that fails must not hide the result of the context attack, nor make it a recovery of images.
    failed = [replace(leak, value=5.0) if leak.metric == "psnr" else leak for leak in with_decoder.leaks]
    (verdict,) = verdicts([Attempt("features", "flea/features", (), "", tuple(failed))], Budget(), "flea")
    assert verdict.state == "identified"
    assert " 0 of 20 images recovered" in verdict.words
    assert column_title("context accuracy", "600 items") == "context accuracy, % (600 items)"


def test_without_a_marker_context_accuracy_is_chance(flea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_attack, "SIZES", (600,))
    monkeypatch.setattr(context_attack, "add_marker", lambda x: x)
    result = run_audit(flea, on_shared=("context",), iterations=100)
    (right,) = leak_values(result, "context", "context accuracy", "600 items")
    assert abs(right - 50) < 3 * 50 / 359**0.5  # three standard errors over the test rows


def test_means_are_compared_with_the_rows_behind_them(tmp_path: Path) -> None:
    result = run_audit(run_sharing(tmp_path / "run", [{"fedmix": {"group": 5}}]), iterations=50)
    (shown,) = result.pictures
    assert shown.attack == "as-sent/round-1"
    means = shown.true.view(-1, 5, 1, 8, 8).mean(1)
    assert torch.allclose(shown.recovered[::5], means, atol=1e-5)
    assert next(v.state for v in result.verdicts if v.kind == "statistics") in ("resisted", "identified")
    assert leak_values(result, "context", "context accuracy", "100 items")


def test_raw_rows_need_no_attack(tmp_path: Path) -> None:
    result = run_audit(run_sharing(tmp_path / "run", "feddata"), on_shared=("context",), iterations=200)
    verdict = next(v for v in result.verdicts if v.kind == "raw")
    assert (verdict.state, "the rows themselves left the clients as they are" in verdict.words) == ("leaked", True)
    assert set(leak_values(result, "as-sent", "mse", "unit")) == {0.0}
    (shown,) = result.pictures
    assert torch.equal(shown.true, shown.recovered)
    accuracies = [leak.value for leak in result.leaks if leak.metric == "context accuracy"]
    assert accuracies[-1] > 99  # raw rows show the marker


@pytest.mark.parametrize("threat", ["sum-only", "fellow-client"])
def test_attackers_without_messages_see_only_broadcast_features(threat: str, tmp_path: Path) -> None:
    """Features of round 1 are broadcast in round 2; those of round 2, the last, never are."""
    run = run_sharing(tmp_path / "run", "flea", rounds=2, record={"rounds": [1, 2]})
    result = run_audit(run, threat=threat_by_name(threat), on_shared=("decoder",), iterations=2)
    assert next(v.state for v in result.verdicts if v.kind == "features") != "unknown"
    assert {leak.attack for leak in result.leaks if leak.metric == "mse"} == {"decoder/round-1"}


def test_features_that_are_not_broadcast_are_invisible_to_fellow_clients(flea: Path) -> None:
    result = run_audit(flea, threat=threat_by_name("fellow-client"), on_shared=("decoder",), iterations=2)
    features = next(v for v in result.verdicts if v.kind == "features")
    assert (features.state, "not passed on to any client" in features.words) == ("unknown", True)


def test_kinds_without_a_requested_attack_are_reported_as_not_attacked(flea: Path) -> None:
    result = run_audit(flea, on_shared=())
    verdicts = {v.kind: v for v in result.verdicts}
    assert verdicts["features"].state == verdicts["weights"].state == "unknown"
    assert "decoder and context were not requested" in verdicts["features"].words


def test_an_audit_of_shared_rows_can_be_saved_loaded_and_shown(
    flea: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_attack, "SIZES", (60,))
    result = run_audit(flea, iterations=5)
    save_audit.write(result, "cpu")
    again = save_audit.read_all(flea)[-1]
    assert (again.budget, again.verdicts) == (result.budget, result.verdicts)
    assert [p.attack for p in again.pictures] == ["decoder/round-1"]
    monkeypatch.setattr("unskew.audits.page_of_audits.load", lambda run: us.load(run, model=network()))
    page = write_page([again], tmp_path / "audit.html").read_text()
    assert "context accuracy, % (60 items)" in page


def test_a_method_without_a_single_step_on_all_rows_is_not_attacked_as_one(tmp_path: Path) -> None:
    """FedMix pairs each batch with as many means; an attacker that unrolls no steps has nothing to match."""
    run = run_sharing(tmp_path / "run", [{"fedmix": {"group": 5}}], local={"epochs": 3, "batch": 4, "lr": 0.1})
    result = run_audit(run, attacks=("ig",), on_shared=(), max_unrolled_steps=1, iterations=1)
    weights = next(v for v in result.verdicts if v.kind == "weights")
    assert weights.state == "unknown"
    assert "cannot be approximated by one gradient on all rows" in weights.words
