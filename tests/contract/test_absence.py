"""Every method under every scenario of absence, in six rounds with three clients, in both engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from small import METHODS, SIZES, dataset, experiment, federation, network
from test_contract import TOLERANCE, run_rounds

import unskew as us
from unskew.base.tree import flatten
from unskew.server.federation import Federation

ROUNDS = 6
SCENARIOS: dict[str, Any] = {
    "temporary": "temporary", "permanent": "permanent", "sequential": "sequential", "two-groups": "two-groups",
    "drawn": [{"dropout": 0.4}, {"sessions": {"on": 2, "off": 1}}],
}  # fmt: skip
LIGHT = {"epochs": 1, "batch": 4, "lr": 0.05, "momentum": 0.5}


def small(method: str, engine: str, scenario: str) -> Federation:
    return federation(method, engine, rounds=ROUNDS, absence=SCENARIOS[scenario], local=LIGHT)


def outcome(fed: Federation) -> tuple[dict[str, torch.Tensor], list]:
    snap, _, ledger = run_rounds(fed, ROUNDS)
    clients = {str(k): tree for k, tree in fed.store.entries.items()}
    return flatten({"model": snap.model, "parts": snap.parts, "clients": clients}), ledger


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("method", METHODS)
def test_both_engines_agree_and_nothing_is_sent_by_absent_clients(method: str, scenario: str) -> None:
    fed = small(method, "loop", scenario)
    (one, ledger), (other, _) = outcome(fed), outcome(small(method, "stacked", scenario))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, msg=lambda text, n=name: f"{n}: {text}", **TOLERANCE)
    for entry in ledger:
        assert entry.client not in fed.sampling.absent(max(entry.round, 1)), entry
    assert any(fed.sampling.absent(t) for t in range(1, ROUNDS + 1)), "nobody was ever absent"


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "moon", "fedcurv", "fedavg-topk", "feddyn", "flea-half"])
def test_same_bytes_twice_and_after_a_resume_in_the_middle_of_an_absence(method: str, tmp_path: Path) -> None:
    """The largest client is away in rounds 3 and 4."""

    def stop(done: us.Round) -> None:
        if done.round == 3:
            raise KeyboardInterrupt

    settings = experiment(method, rounds=ROUNDS, absence="temporary", local=LIGHT)
    given = {"data": dataset(), "model": network(False)}
    us.run(settings, out=tmp_path / "one", **given)
    us.run(settings, out=tmp_path / "two", **given)
    with pytest.raises(KeyboardInterrupt):
        us.run(settings, out=tmp_path / "resumed", callbacks=[stop], **given)
    us.run(settings, out=tmp_path / "resumed", **given)
    for name in ("model.safetensors", "metrics.parquet", "ledger.parquet"):
        for other in ("two", "resumed"):
            assert (tmp_path / other / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), (other, name)


@pytest.mark.parametrize(("method", "part"), [("scaffold", "scaffold"), ("moon", "moon"), ("fedavg-topk", "topk")])
def test_a_client_that_returns_finds_its_own_state(method: str, part: str) -> None:
    """The state of the largest client stays as it left it in round 2, and changes again in round 5."""
    fed = small(method, "loop", "temporary")
    largest = SIZES.index(max(SIZES))
    snap, states = fed.start(), []
    for _ in range(ROUNDS):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
        states.append(flatten(fed.store.entries[largest][part]))
    assert fed.sampling.absent(3) == fed.sampling.absent(4) == [largest]
    for away in (states[2], states[3]):
        assert all(torch.equal(away[name], tensor) for name, tensor in states[1].items())
    assert any(not torch.equal(states[4][name], tensor) for name, tensor in states[1].items())


@pytest.mark.parametrize("engine", ["loop", "stacked", "plain"])
def test_absence_of_nobody_is_bit_equal_to_none(engine: str) -> None:
    nobody = [{"clients": [], "rounds": [1, 9]}, {"dropout": 0}]
    (one, _), (other, _) = (
        outcome(federation("scaffold", engine, rounds=ROUNDS, absence=absence, local=LIGHT)) for absence in ([], nobody)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(other[name], tensor) for name, tensor in one.items())


def test_config_and_header_show_the_resolved_rounds(tmp_path: Path) -> None:
    settings = experiment("fedavg", rounds=ROUNDS, absence="temporary", local=LIGHT)
    us.run(settings, out=tmp_path, data=dataset(), model=network(False))
    run, largest = us.load(tmp_path, model=network(False)), SIZES.index(max(SIZES))
    assert run.config.absence[0].intervals == ((largest, 3, 5),)
    assert f"absence    client {largest} is absent in rounds 3 to 4" in run.about["header"]
    recorded, asked = (each.absence[0].identity_settings(ROUNDS) for each in (run.config, settings))
    assert recorded == asked, "the intervals follow from the settings"


def test_an_empty_round_is_a_row_with_an_unchanged_model(tmp_path: Path) -> None:
    away = [{"clients": [0, 1, 2], "rounds": [2, 4]}]
    settings = experiment("fedavg", rounds=4, absence=away, local=LIGHT)
    us.run(settings, out=tmp_path, data=dataset(), model=network(False))
    run = us.load(tmp_path, model=network(False))
    accuracy = run.metrics.query("who == 'server' and split == 'test' and metric == 'loss'").set_index("round")["value"]
    assert list(accuracy.index) == [0, 1, 2, 3, 4]
    assert accuracy[1] == accuracy[2] == accuracy[3] != accuracy[4]
    assert any("no client is present in 2 of the rounds, first in round 2" in line for line in run.about["header"])


def test_the_server_knows_the_rows_that_clients_and_stand_ins_reported(fedavg_with: Any) -> None:
    seen: list[dict[int, int]] = []

    class Watch(us.Part):
        sends = {"n": us.Artefact("counts", reduce="sum")}

        def up(self, end: us.End) -> Any:
            return {"n": torch.ones((), dtype=torch.float64)}, end.part_state

        def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
            return {k: us.StandIn(torch.ones(2, 5), torch.zeros(2, dtype=torch.int64), 77) for k in absent}

        def step(self, server: us.Server) -> us.Server:
            return server

        def merge(self, server: us.Server, messages: us.Messages) -> us.Server:
            seen.append({k: messages.rows_of(k) for k in messages.clients})
            return server

    method = fedavg_with(Watch)
    for engine in ("plain", "loop", "stacked"):
        run_rounds(federation(method, engine, absence=[{"clients": [2], "rounds": [2, 3]}]))
    assert seen == [dict(enumerate(SIZES)), {0: SIZES[0], 1: SIZES[1], 2: 77}] * 3
