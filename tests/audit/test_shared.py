"""Attacks on what clients share row by row: a decoder on features, contexts, means and rows as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import unskew as us
from unskew.audit import save_audit
from unskew.audit.attacks import context_attack as contexts
from unskew.audit.attacks import feature_decoder as decoders
from unskew.audit.audit_run import Audit, audit
from unskew.audit.budget import Budget
from unskew.audit.page.metric_titles import column
from unskew.audit.page_of_audits import write_page
from unskew.audit.replayed_run import set_up
from unskew.audit.shared_data import shared
from unskew.audit.threat_model import SERVER, find
from unskew.results import recorded_messages
from unskew.runner.prepare_run import read_data

QUICK = {"attacks": (), "images": 20, "iterations": 400, "membership": "none"}


def network() -> nn.Sequential:
    """The first block keeps the picture in one of its four channels."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head, tail = nn.Conv2d(1, 4, 1), nn.Sequential(nn.Flatten(), nn.Linear(4 * 64, 10))
    with torch.no_grad():
        head.weight[2], head.bias[2] = 1.0, 0.0
    return nn.Sequential(head, tail)


def played(out: Path, method: object, **changes: object) -> Path:
    keys = {"rounds": 1, "participation": 0.2, "partition": {"name": "iid", "clients": 20}, "device": "cpu"}
    keys |= {"local": {"epochs": 1, "batch": 32, "lr": 1e-6}, "record": {"rounds": [1]}}
    us.run(
        us.Experiment(method=method, data="digits", engine={"name": "loop", "workers": 1}, **keys | changes),
        out=out, model=network(),
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def flea(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return played(tmp_path_factory.mktemp("runs") / "flea", "flea")


def audited(run: Path, **changes: object) -> Audit:
    return audit(run, Budget(**QUICK | changes), device="cpu", model=network())


def values(found: Audit, attack: str, metric: str, space: str) -> list[float]:
    said = [leak for leak in found.leaks if (leak.metric, leak.space) == (metric, space)]
    return [leak.value for leak in said if leak.attack.startswith(attack)]


def test_the_decoder_is_the_papers_and_gives_rows_of_the_right_shape() -> None:
    net = decoders.net((16, 32, 32), (3, 32, 32))
    assert [tuple(p.shape) for p in net.parameters() if p.ndim == 4] == [
        (32, 16, 1, 1), (32, 32, 3, 3), (32, 32, 3, 3), (3, 32, 1, 1),
    ]  # fmt: skip
    assert not any(isinstance(layer, nn.ReLU) for layer in net)
    assert net(torch.zeros(2, 16, 32, 32)).shape == (2, 3, 32, 32)
    assert decoders.net((16, 16, 86), (2, 64, 344))(torch.zeros(1, 16, 16, 86)).shape == (1, 2, 64, 344)
    assert decoders.net((5,), (1, 2, 2))(torch.zeros(3, 5)).shape == (3, 1, 2, 2)
    seen = torch.zeros(1, 128, 20, 7, requires_grad=True)  # wider than the rows: no column of it may be left out
    found = decoders.net((128, 20, 7), (1, 128, 3))(seen)
    assert found.shape == (1, 1, 128, 3)
    found.sum().backward()
    assert (seen.grad.abs().sum((0, 1, 2)) > 0).all()


def test_a_head_that_keeps_the_picture_gives_it_away(flea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoders, "BATCH", 32)
    monkeypatch.setattr(decoders, "RATE", 5e-3)
    found = audited(flea, on_shared=("decoder",))
    errors = values(found, "decoder", "mse", "unit")
    assert len(errors) == 20
    assert sum(errors) / len(errors) < 1e-4
    verdict = next(v for v in found.verdicts if v.kind == "features")
    assert verdict.state == "recovered"
    assert "decoder: MSE 0.0000 after 400 steps on" in verdict.words
    trace = values(found, "decoder", "matching loss", "training, round-1")
    assert len(trace) == 20
    assert trace[0] > 10 * trace[-1]


def test_pictures_are_the_rows_that_were_shared(flea: Path) -> None:
    (shown,) = audited(flea, on_shared=("decoder",), iterations=2).pictures
    rows = read_data(us.load(flea, model=network()).config, None).train.x[list(shown.images)]
    assert torch.allclose(shown.true, rows, atol=1e-6)


def test_the_attacker_learns_from_no_row_of_the_attacked_clients(flea: Path) -> None:
    world = set_up(us.load(flea, model=network()), "cpu", model=network())
    (one,) = shared(world, SERVER, recorded_messages.read(flea), "flea", "features", 20)
    index, behind = world.context.client_rows.index, set(one.rows.flatten().tolist())
    attacked = [set(index[k].tolist()) for k in range(20) if behind & set(index[k].tolist())]
    assert 0 < len(attacked) < 20
    assert set(one.others(0).tolist()) == set(range(len(world.context.client_rows.x))) - set.union(*attacked)


def test_contexts_are_told_better_from_more_items(flea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "SIZES", (4, 60, 600))
    found = audited(flea, on_shared=("context",), iterations=150)
    few, some, many = (values(found, "context", "context accuracy", f"{n} items")[0] for n in (4, 60, 600))
    assert many > 95
    assert few < some <= many
    with_decoder = audited(flea, iterations=150)  # a decoder that brings nothing back must not hide what contexts tell
    for one in (found, with_decoder):
        verdict = next(v for v in one.verdicts if v.kind == "features")
        assert verdict.state == "recovered"
        assert "the context was named for 90 % or more" in verdict.words
    assert "0 of 20 images" in verdict.words
    assert column("context accuracy", "600 items") == "context named, % (600 items)"


def test_what_nobody_marked_is_told_by_chance(flea: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "SIZES", (600,))
    monkeypatch.setattr(contexts, "marked", lambda x: x)
    found = audited(flea, on_shared=("context",), iterations=100)
    (right,) = values(found, "context", "context accuracy", "600 items")
    assert abs(right - 50) < 3 * 50 / 359**0.5  # three standard errors over the test rows


def test_means_are_held_against_the_rows_behind_them(tmp_path: Path) -> None:
    found = audited(played(tmp_path / "run", [{"fedmix": {"group": 5}}]), iterations=50)
    (shown,) = found.pictures
    assert shown.attack == "as-sent/round-1"
    means = shown.true.view(-1, 5, 1, 8, 8).mean(1)
    assert torch.allclose(shown.recovered[::5], means, atol=1e-5)
    assert next(v.state for v in found.verdicts if v.kind == "statistics") in ("resisted", "recovered")
    assert values(found, "context", "context accuracy", "100 items")


def test_raw_rows_need_no_attack(tmp_path: Path) -> None:
    found = audited(played(tmp_path / "run", "feddata"), on_shared=("context",), iterations=200)
    verdict = next(v for v in found.verdicts if v.kind == "raw")
    assert (verdict.state, "there is nothing to attack" in verdict.words) == ("recovered", True)
    assert set(values(found, "as-sent", "mse", "unit")) == {0.0}
    (shown,) = found.pictures
    assert torch.equal(shown.true, shown.recovered)
    told = [leak.value for leak in found.leaks if leak.metric == "context accuracy"]
    assert told[-1] > 99  # a marker in plain sight


@pytest.mark.parametrize("threat", ["sum-only", "fellow-client"])
def test_what_is_broadcast_is_seen_by_everybody_and_nothing_else(threat: str, tmp_path: Path) -> None:
    """Features of round 1 go down in round 2; those of round 2, the last, never do."""
    run = played(tmp_path / "run", "flea", rounds=2, record={"rounds": [1, 2]})
    found = audited(run, threat=find(threat), on_shared=("decoder",), iterations=2)
    assert next(v.state for v in found.verdicts if v.kind == "features") != "unknown"
    assert {leak.attack for leak in found.leaks if leak.metric == "mse"} == {"decoder/round-1"}


def test_features_that_nobody_was_sent_are_not_seen_by_fellow_clients(flea: Path) -> None:
    found = audited(flea, threat=find("fellow-client"), on_shared=("decoder",), iterations=2)
    features = next(v for v in found.verdicts if v.kind == "features")
    assert (features.state, "was not sent on to anybody" in features.words) == ("unknown", True)


def test_without_a_fitting_attack_it_is_said(flea: Path) -> None:
    found = audited(flea, on_shared=())
    said = {v.kind: v for v in found.verdicts}
    assert said["features"].state == said["weights"].state == "unknown"
    assert "decoder and context were not asked for" in said["features"].words


def test_such_an_audit_is_written_read_and_drawn(flea: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "SIZES", (60,))
    found = audited(flea, iterations=5)
    save_audit.write(found, "cpu")
    again = save_audit.read(flea)
    assert (again.budget, again.verdicts) == (found.budget, found.verdicts)
    assert [p.attack for p in again.pictures] == ["decoder/round-1"]
    monkeypatch.setattr("unskew.audit.page_of_audits.load", lambda run: us.load(run, model=network()))
    page = write_page([again], tmp_path / "audit.html").read_text()
    assert "context named, % (60 items)" in page
