"""A round is played on trust that all messages are finite, and once more, looking first, when one was not."""

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
    """The client with eleven rows sends a number that is not finite in its first round."""

    sends = SENT

    def client_init(self, model: Any, client: us.Newcomer) -> State:
        return {"rounds": torch.zeros(())}

    def up(self, end: us.End) -> tuple[dict, State]:
        bad = (end.facts.rows > 10) & (end.part_state["rounds"] == 0)
        return {"n": torch.where(bad, torch.inf, end.facts.rows)}, {"rounds": end.part_state["rounds"] + 1}


@pytest.fixture
def spoilt(spy: Any) -> Any:
    return spy(type("Once", (Spoilt,), {}))  # a class can be registered once


def watched(fed: Federation) -> tuple[Federation, list[int]]:
    """The federation, and the round of each attempt at one."""
    begun: list[int] = []
    return replace(fed, phase=lambda name, round: begun.append(round) if name == "plan" else None), begun


def test_the_round_is_played_again_and_the_message_refused(engine: str, spoilt: Any) -> None:
    fed, begun = watched(federation(spoilt, engine, rounds=3, absence=[]))
    dropped, snap = [], fed.start()
    for _ in range(3):
        snap, report = fed.play(snap)
        fed.store.commit()
        dropped.append(report.dropped)
    # In round 2 client 0 is as new as in round 1, and by then every message is looked at first.
    assert dropped == [[0], [0], [0]]
    assert begun == ([1, 1, 2, 3] if engine == "stacked" else [1, 2, 3])
    assert 0 not in fed.store.entries
    assert all(bool(torch.isfinite(t).all()) for t in snap.model.values())


def test_engines_agree_on_a_round_that_was_played_again(spoilt: Any) -> None:
    ends = []
    for engine in ("plain", "loop", "stacked"):
        fed = federation(spoilt, engine, absence=[])
        ends.append(fed.play(fed.start()))
    plain, told = ends[0]
    for snap, report in ends[1:]:
        assert snap.ledger.entries == plain.ledger.entries
        assert report.dropped == told.dropped == [0]
        assert report.terms.keys() == told.terms.keys() == {1, 2}
        for name, tensor in plain.model.items():
            torch.testing.assert_close(snap.model[name], tensor, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("limit", [1, 2, 3])
@pytest.mark.parametrize("name", ["scaffold", "flea", "fedavg+topk", "test-all"])
def test_cohorts_exchanges_and_seals_of_a_round_that_was_played_again(
    name: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second client's first tensor is spoilt on its way, in round 2: both engines go on without its message."""
    ends = []
    for engine in ("loop", "stacked"):
        fed = federation(name, engine, rounds=3, norm=True)
        if engine == "stacked":
            fed.engine.limit = limit  # type: ignore[attr-defined]
            fed.engine._ahead._useful = True  # type: ignore[attr-defined]
        snap, dropped = fed.start(), []
        for _ in range(3):
            with monkeypatch.context() as patch:
                if snap.round == 1:
                    patch.setattr(client, "finish", spoiling(client.finish))
                    patch.setattr(stacked, "finish", client.finish)
                snap, report = fed.play(snap)
            fed.store.commit()
            dropped.append(report.dropped)
        ends.append((snap, dropped))
    (one, refused), (other, also) = ends
    assert refused == also == [[], [1], []]
    assert (one.ledger.bytes_up, one.ledger.entries) == (other.ledger.bytes_up, other.ledger.entries)
    for key, tensor in one.model.items():
        torch.testing.assert_close(tensor, other.model[key], rtol=1e-7, atol=1e-9)


def spoiling(finish: Any) -> Any:
    """`finish` that sends no number in the place of the first of the client with two rows."""

    def spoilt(*given: Any) -> Any:
        message, kept = finish(*given)
        part = next(name for name, sent in message.items() if "weights" in sent)
        state = message[part]["weights"]
        name = next(iter(state))
        bad = torch.where(given[5].rows == 2, torch.nan, state[name])
        return message | {part: message[part] | {"weights": state | {name: bad}}}, kept

    return spoilt


def test_a_loss_that_is_not_finite_says_more_than_what_came_of_it(engine: str, spy: Any) -> None:
    class Lost(us.Part):
        def loss(self, view: us.View) -> torch.Tensor:
            return torch.full_like(view.w.sum(), torch.nan)

        def merge(self, server: Server, messages: PartMessages) -> Server:
            raise ValueError("this comes of it")

    fed = federation(spy(Lost), engine, absence=[])
    with pytest.raises(NotFiniteError, match="client 0: expected finite loss terms, found spy nan"):
        fed.play(fed.start())


def test_a_server_that_is_changed_in_place_cannot_be_played_again(spy: Any) -> None:
    class InPlace(Spoilt):
        def server_init(self, model: Any, task: Any) -> State:
            return {"m": torch.zeros(())}

        def merge(self, server: Server, messages: PartMessages) -> Server:
            server.part_state["m"].add_(messages.mean("n"))
            return server

    fed = federation(spy(InPlace), "stacked", absence=[])
    with pytest.raises(us.UserError, match="spy m of the server was changed in place"):
        fed.play(fed.start())


def test_rows_of_a_round_count_once(spoilt: Any) -> None:
    shares = []
    for method in ("fedavg", spoilt):
        fed = federation(method, "stacked", absence=[])
        fed.play(fed.start())
        shares.append(fed.engine.padding_share)
    assert shares[0] == shares[1] > 0


def test_no_memory_for_the_next_round_does_not_end_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*given: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    fed = federation("fedavg", "stacked", absence=[])
    monkeypatch.setattr(fed.engine._ahead, "prepare", none_left)  # type: ignore[attr-defined]
    snap, _ = fed.play(fed.start())
    assert fed.play(snap)[0].round == 2


def test_a_merge_that_cannot_take_such_numbers_is_asked_again(engine: str, spy: Any) -> None:
    class Strict(Spoilt):
        def merge(self, server: Server, messages: PartMessages) -> Server:
            if not bool(torch.isfinite(messages.mean("n"))):
                raise ValueError("not finite")
            return server

    fed, begun = watched(federation(spy(Strict), engine, absence=[]))
    _, report = fed.play(fed.start())
    assert report.dropped == [0]
    assert len(begun) == (2 if engine == "stacked" else 1)


def test_an_error_of_its_own_goes_up_at_once(engine: str, spy: Any) -> None:
    class Broken(us.Part):
        sends = SENT

        def up(self, end: us.End) -> tuple[dict, State]:
            return {"n": end.facts.rows}, {}

        def merge(self, server: Server, messages: PartMessages) -> Server:
            raise ValueError("broken")

    fed, begun = watched(federation(spy(Broken), engine, absence=[]))
    with pytest.raises(ValueError, match="broken"):
        fed.play(fed.start())
    assert len(begun) == 1


def test_rounds_that_are_fine_are_played_once_and_read_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what the device has found waits for it: so not before everything else has been asked of it."""
    fed, begun = watched(federation("fedavg", "stacked", absence=[]))
    snap, seen = fed.start(), []
    verify_finite = fed.engine.verify_finite

    def spied() -> bool:
        seen.append(len(fed.engine._unverified))  # type: ignore[attr-defined]
        return verify_finite()

    monkeypatch.setattr(fed.engine, "verify_finite", spied)
    for _ in range(2):
        snap, _ = fed.play(snap)
    assert begun == [1, 2]
    assert seen == [1, 1]  # one cohort, not looked at until then


def test_first_batches_put_in_place_early_are_those_of_the_round() -> None:
    """As on a GPU, where they are made while the round before trains."""
    ends, staged = [], []
    for useful in (True, False):
        fed = federation("fedavg", "stacked", rounds=4)  # one client is absent in the second round
        fed.engine._ahead._useful = useful  # type: ignore[attr-defined]
        snap = fed.start()
        for _ in range(4):
            snap, _ = fed.play(snap)
            stack = fed.engine._stack  # type: ignore[attr-defined]
            staged.append(stack._staged is not None)
        ends.append(snap.model)
    assert staged == [True] * 3 + [False] * 5
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
