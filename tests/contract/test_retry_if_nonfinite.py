"""A round is run as if all messages were finite, and repeated with checks first if one was not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small import federation

import unskew as us
from unskew.base.tree import State
from unskew.client import round as client
from unskew.engines.stacked import stacked_engine as stacked
from unskew.protocol.server_view import Server
from unskew.server.federation import Federation
from unskew.server.loss_check import NotFiniteError
from unskew.server.round_messages import PartMessages

SENT = {"n": us.Artefact("statistics", reduce="mean")}


class Spoilt(us.Part):
    """The client with eleven rows sends infinity in its first round."""

    sends = SENT

    def client_init(self, model: Any, client: us.Newcomer) -> State:
        return {"rounds": torch.zeros(())}

    def up(self, end: us.End) -> tuple[dict, State]:
        bad = (end.facts.rows > 10) & (end.part_state["rounds"] == 0)
        return {"n": torch.where(bad, torch.inf, end.facts.rows)}, {"rounds": end.part_state["rounds"] + 1}


@pytest.fixture
def spoilt(fedavg_with: Any) -> Any:
    return fedavg_with(type("Once", (Spoilt,), {}))  # a subclass, because a class can be registered only once


def watched(fed: Federation) -> tuple[Federation, list[int]]:
    """The federation, and a list with the round number of each attempt."""
    attempts: list[int] = []
    return replace(fed, on_phase=lambda name, round: attempts.append(round) if name == "plan" else None), attempts


def test_the_round_is_repeated_and_the_message_refused(engine: str, spoilt: Any) -> None:
    fed, attempts = watched(federation(spoilt, engine, rounds=3, absence=[]))
    refused_clients, snap = [], fed.start()
    for _ in range(3):
        snap, report = fed.run_round(snap)
        fed.store.commit()
        refused_clients.append(report.refused_clients)
    # In round 2 client 0 still has its initial state, and every message is now checked first.
    assert refused_clients == [[0], [0], [0]]
    assert attempts == ([1, 1, 2, 3] if engine == "stacked" else [1, 2, 3])
    assert 0 not in fed.store.entries
    assert all(bool(torch.isfinite(t).all()) for t in snap.model.values())


def test_engines_agree_on_a_repeated_round(spoilt: Any) -> None:
    results = []
    for engine in ("plain", "loop", "stacked"):
        fed = federation(spoilt, engine, absence=[])
        results.append(fed.run_round(fed.start()))
    plain, plain_report = results[0]
    for snap, report in results[1:]:
        assert snap.ledger.entries == plain.ledger.entries
        assert report.refused_clients == plain_report.refused_clients == [0]
        assert report.terms.keys() == plain_report.terms.keys() == {1, 2}
        for name, tensor in plain.model.items():
            torch.testing.assert_close(snap.model[name], tensor, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("name", ["scaffold", "flea", "fedavg+topk", "test-all"])
def test_engines_agree_on_a_repeated_round_with_cohorts_exchanges_and_seals(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second client's first tensor becomes nan in round 2: both engines continue without its message."""
    results = []
    for engine in ("loop", "stacked"):
        fed = federation(name, engine, rounds=3, norm=True)
        if engine == "stacked":
            fed.engine.limit = limit  # type: ignore[attr-defined]
            fed.engine._prefetch._enabled = True  # type: ignore[attr-defined]
        snap, refused_clients = fed.start(), []
        for _ in range(3):
            with monkeypatch.context() as patch:
                if snap.round == 1:
                    patch.setattr(client, "finish", spoiling(client.finish))
                    patch.setattr(stacked, "finish", client.finish)
                snap, report = fed.run_round(snap)
            fed.store.commit()
            refused_clients.append(report.refused_clients)
        results.append((snap, refused_clients))
    (one, refused), (other, other_refused) = results
    assert refused == other_refused == [[], [1], []]
    assert (one.ledger.bytes_up, one.ledger.entries) == (other.ledger.bytes_up, other.ledger.entries)
    for key, tensor in one.model.items():
        torch.testing.assert_close(tensor, other.model[key], rtol=1e-7, atol=1e-9)


def spoiling(finish: Any) -> Any:
    """`finish` with nan in the first weight tensor of the client with two rows."""

    def spoilt_finish(*args: Any) -> Any:
        message, client_state = finish(*args)
        part = next(name for name, sent in message.items() if "weights" in sent)
        state = message[part]["weights"]
        name = next(iter(state))
        bad = torch.where(args[5].rows == 2, torch.nan, state[name])
        return message | {part: message[part] | {"weights": state | {name: bad}}}, client_state

    return spoilt_finish


def test_error_of_a_bad_loss_comes_before_the_errors_it_causes(engine: str, fedavg_with: Any) -> None:
    class NanLoss(us.Part):
        def loss(self, view: us.View) -> torch.Tensor:
            return torch.full_like(view.w.sum(), torch.nan)

        def merge(self, server: Server, messages: PartMessages) -> Server:
            raise ValueError("caused by the loss")

    fed = federation(fedavg_with(NanLoss), engine, absence=[])
    with pytest.raises(NotFiniteError, match="client 0: expected finite loss terms, found spy nan"):
        fed.run_round(fed.start())


def test_a_round_that_changes_the_server_in_place_cannot_be_repeated(fedavg_with: Any) -> None:
    class InPlace(Spoilt):
        def server_init(self, model: Any, task: Any) -> State:
            return {"m": torch.zeros(())}

        def merge(self, server: Server, messages: PartMessages) -> Server:
            server.part_state["m"].add_(messages.mean("n"))
            return server

    fed = federation(fedavg_with(InPlace), "stacked", absence=[])
    with pytest.raises(us.UserError, match="spy m of the server was changed in place"):
        fed.run_round(fed.start())


def test_rows_of_a_repeated_round_count_once(spoilt: Any) -> None:
    shares = []
    for method in ("fedavg", spoilt):
        fed = federation(method, "stacked", absence=[])
        fed.run_round(fed.start())
        shares.append(fed.engine.padding_share)
    assert shares[0] == shares[1] > 0


def test_failed_prefetch_of_the_next_round_does_not_end_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    fed = federation("fedavg", "stacked", absence=[])
    monkeypatch.setattr(fed.engine._prefetch, "prepare", none_left)  # type: ignore[attr-defined]
    snap, _ = fed.run_round(fed.start())
    assert fed.run_round(snap)[0].round == 2


def test_a_merge_that_fails_on_bad_numbers_is_repeated(engine: str, fedavg_with: Any) -> None:
    class Strict(Spoilt):
        def merge(self, server: Server, messages: PartMessages) -> Server:
            if not bool(torch.isfinite(messages.mean("n"))):
                raise ValueError("not finite")
            return server

    fed, attempts = watched(federation(fedavg_with(Strict), engine, absence=[]))
    _, report = fed.run_round(fed.start())
    assert report.refused_clients == [0]
    assert len(attempts) == (2 if engine == "stacked" else 1)


def test_an_unrelated_error_is_raised_at_once(engine: str, fedavg_with: Any) -> None:
    class Broken(us.Part):
        sends = SENT

        def up(self, end: us.End) -> tuple[dict, State]:
            return {"n": end.facts.rows}, {}

        def merge(self, server: Server, messages: PartMessages) -> Server:
            raise ValueError("broken")

    fed, attempts = watched(federation(fedavg_with(Broken), engine, absence=[]))
    with pytest.raises(ValueError, match="broken"):
        fed.run_round(fed.start())
    assert len(attempts) == 1


def test_finite_rounds_run_once_and_are_verified_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the result of the checks waits for the device, so it happens after all other work is queued."""
    fed, attempts = watched(federation("fedavg", "stacked", absence=[]))
    snap, unverified = fed.start(), []
    verify_finite = fed.engine.verify_finite

    def count_and_verify() -> bool:
        unverified.append(len(fed.engine._unverified))  # type: ignore[attr-defined]
        return verify_finite()

    monkeypatch.setattr(fed.engine, "verify_finite", count_and_verify)
    for _ in range(2):
        snap, _ = fed.run_round(snap)
    assert attempts == [1, 2]
    assert unverified == [1, 1]  # one cohort, not verified before


def test_first_batches_staged_early_are_those_of_the_round() -> None:
    """As on a GPU, where they are prepared while the previous round trains."""
    models, staged = [], []
    for enabled in (True, False):
        fed = federation("fedavg", "stacked", rounds=4)  # one client is absent in the second round
        fed.engine._prefetch._enabled = enabled  # type: ignore[attr-defined]
        snap = fed.start()
        for _ in range(4):
            snap, _ = fed.run_round(snap)
            stack = fed.engine._stack  # type: ignore[attr-defined]
            staged.append(stack._staged is not None)
        models.append(snap.model)
    assert staged == [True] * 3 + [False] * 5
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
