"""A round is played on trust that all messages are finite, and once more, looking first, when one was not."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small import federation

import unskew as us
from unskew.core.federation import Federation
from unskew.core.messages import Messages
from unskew.core.server import Server
from unskew.core.state import State

SENT = {"n": us.Artefact("statistics", reduce="mean")}


class Spoilt(us.Part):
    """The client with eleven rows sends a number that is not finite in its first round."""

    sends = SENT

    def client_init(self, model: Any, client: us.Newcomer) -> State:
        return {"rounds": torch.zeros(())}

    def up(self, end: us.End) -> tuple[dict, State]:
        bad = (end.facts.rows > 10) & (end.mine["rounds"] == 0)
        return {"n": torch.where(bad, torch.inf, end.facts.rows)}, {"rounds": end.mine["rounds"] + 1}


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
    for name in ("loop", "stacked"):
        fed = federation(spoilt, name, absence=[])
        snap, report = fed.play(fed.start())
        ends.append((snap, report))
    (one, told), (other, also) = ends
    assert one.ledger.entries == other.ledger.entries
    assert told.terms.keys() == also.terms.keys() == {0, 1, 2}
    for name, tensor in one.model.items():
        torch.testing.assert_close(tensor, other.model[name], rtol=1e-9, atol=1e-11)


def test_a_merge_that_cannot_take_such_numbers_is_asked_again(engine: str, spy: Any) -> None:
    class Strict(Spoilt):
        def merge(self, server: Server, messages: Messages) -> Server:
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

        def merge(self, server: Server, messages: Messages) -> Server:
            raise ValueError("broken")

    fed, begun = watched(federation(spy(Broken), engine, absence=[]))
    with pytest.raises(ValueError, match="broken"):
        fed.play(fed.start())
    assert len(begun) == 1


def test_rounds_that_are_fine_are_played_once_and_read_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what the device has found waits for it: so not before everything else has been asked of it."""
    fed, begun = watched(federation("fedavg", "stacked", absence=[]))
    snap, seen = fed.start(), []
    settle = fed.engine.settle

    def spied() -> bool:
        seen.append(len(fed.engine._doubts))  # type: ignore[attr-defined]
        return settle()

    monkeypatch.setattr(fed.engine, "settle", spied)
    for _ in range(2):
        snap, _ = fed.play(snap)
    assert begun == [1, 2]
    assert seen == [1, 1]  # one cohort, not looked at until then


@pytest.mark.parametrize("early", [True, False])
def test_first_batches_put_in_place_early_are_those_of_the_round(early: bool) -> None:
    """As on a GPU, where they are made while the round before trains."""
    ends, staged = [], []
    for useful in (early, False):
        fed = federation("fedavg", "stacked", rounds=4)  # one client is absent in the second round
        fed.engine._ahead._useful = useful  # type: ignore[attr-defined]
        snap = fed.start()
        for _ in range(4):
            snap, _ = fed.play(snap)
            stack = fed.engine._stack  # type: ignore[attr-defined]
            staged.append(stack._staged is not None)
        ends.append(snap.model)
    assert staged == [early] * 3 + [False] * 5
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
