"""Invalid replies are refused with a reason, and the round continues as if their clients had not answered."""

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import federation
from torch import Tensor

import unskew as us
from unskew.base.errors import UserError
from unskew.base.tensor_codec import to_bytes
from unskew.base.tree import State, flatten, tree_map
from unskew.client.serve import serve, serve_bytes
from unskew.config.experiment import Experiment
from unskew.server.exchanges import exchange_contract, expect_after_training
from unskew.server.federation import Federation
from unskew.server.inbox import Inbox
from unskew.server.loss_check import NotFiniteError
from unskew.server.reply_policy import ReplyPolicy
from unskew.server.round_messages import RoundMessages
from unskew.server.snapshot import Refusal, RoundReport, Snapshot
from unskew.wire.contract import RefusedError
from unskew.wire.ledger import REFUSED, Ledger
from unskew.wire.requests_and_replies import (
    ClientReply,
    Request,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from unskew.wire.requests_and_replies import replies_one_by_one as one_by_one

METHODS = ("fedavg", "scaffold", "flea")
Change = Callable[[ClientReply], Iterator[ClientReply]]


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def with_changed_replies(fed: Federation, change: Change) -> Federation:
    """The federation with an engine whose replies to training are changed before they reach the server."""
    train = fed.engine.train

    def wrapped(*args: Any) -> Iterator[ClientReply]:
        for reply in one_by_one(train(*args)):
            yield from change(reply)

    fed.engine.train = wrapped  # type: ignore[method-assign, assignment]
    return fed


def run_rounds(fed: Federation, count: int = 2) -> tuple[Snapshot, list[RoundReport]]:
    """Run some rounds: the last snapshot and all reports."""
    snap, reports = fed.start(), []
    for _ in range(count):
        snap, report = fed.run_round(snap)
        fed.store.commit()
        reports.append(report)
    return snap, reports


def replace_fields(sender: int, **fields: Any) -> Change:
    def change(reply: ClientReply) -> Iterator[ClientReply]:
        yield reply._replace(**fields) if reply.client == sender else reply

    return change


def without_reply_of(client: int) -> Change:
    """Drop all replies of a client."""

    def change(reply: ClientReply) -> Iterator[ClientReply]:
        if reply.client != client:
            yield reply

    return change


def with_weights(reply: ClientReply, change: Callable[[State], State]) -> ClientReply:
    """The reply with other weights."""
    sent = reply.message["average"]
    return reply._replace(message=reply.message | {"average": sent | {"weights": change(sent["weights"])}}, finite=None)  # type: ignore[arg-type]


def assert_same(one: Federation, other: Federation, count: int = 2) -> tuple[Snapshot, Snapshot]:
    """Run both federations and compare every bit of server and clients."""
    (a, _), (b, _) = run_rounds(one, count), run_rounds(other, count)
    for left, right in ((a.model, b.model), (flatten(a.parts), flatten(b.parts))):
        assert left.keys() == right.keys()
        assert all(torch.equal(left[key], right[key]) for key in left)
    trees = [{str(k): tree for k, tree in fed.store.entries.items()} for fed in (one, other)]
    states = [flatten(tree) for tree in trees]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    return a, b


WRONG_WEIGHTS: dict[str, Callable[[State], State]] = {
    "another shape": lambda w: w | {"2.bias": torch.zeros(4, dtype=w["2.bias"].dtype)},
    "one more axis": lambda w: w | {"2.bias": w["2.bias"][None]},
    "another type": lambda w: w | {"2.bias": w["2.bias"].float()},
    "no bias": lambda w: {key: t for key, t in w.items() if key != "2.bias"},
    "one more tensor": lambda w: w | {"secret": torch.zeros(1)},
    "no weights": lambda w: {},
}


@pytest.mark.parametrize("fault", WRONG_WEIGHTS)
def test_a_first_reply_of_another_form_is_refused_and_the_others_are_not(name: str, engine: str, fault: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        yield with_weights(reply, WRONG_WEIGHTS[fault]) if reply.client == 0 else reply

    wrong = with_changed_replies(federation(name, engine, absence=[]), spoil)
    snap, _ = assert_same(wrong, with_changed_replies(federation(name, engine, absence=[]), without_reply_of(0)))
    assert (snap.sampled, snap.answered, snap.absent) == ({0, 1, 2}, {1, 2}, {0})
    refused = [entry for entry in snap.ledger.entries if entry.kind == REFUSED]
    assert [(e.round, e.phase, e.client, e.direction) for e in refused] == [(2, "train", 0, "up")]
    assert refused[0].artefact.startswith("average/weights")
    assert (refused[0].bytes > 0) is (fault != "no weights" or name == "scaffold")


def test_the_model_does_not_change_if_all_replies_have_another_form(name: str, engine: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        yield with_weights(reply, WRONG_WEIGHTS["another shape"])

    fed = with_changed_replies(federation(name, engine, absence=[]), spoil)
    before = fed.start().model
    snap, reports = run_rounds(fed)
    assert all(torch.equal(before[key], snap.model[key]) for key in before)
    refused = [(r.client, r.reason) for r in reports[0].refused]
    reason = "average/weights: 2.bias: expected float64 [3], found float64 [4]"
    assert refused == [(0, reason), (1, reason), (2, reason)]
    assert reports[0].refused_clients == [0, 1, 2]
    assert not reports[0].terms


def test_a_second_answer_is_refused(name: str, engine: str) -> None:
    """Even if it differs from the first."""

    def twice(reply: ClientReply) -> Iterator[ClientReply]:
        yield reply
        yield with_weights(reply, lambda w: tree_map(lambda t: 2 * t, w))

    fed = with_changed_replies(federation(name, engine, absence=[]), twice)
    _, (report, *_) = run_rounds(fed, 1)
    assert [(r.client, r.reason) for r in report.refused] == [
        (k, "client: expected one answer, found a second one") for k in (0, 1, 2)
    ]
    assert report.refused_clients == []
    assert_same(with_changed_replies(federation(name, engine, absence=[]), twice), federation(name, engine, absence=[]))


def test_an_answer_to_another_round_is_refused(name: str, engine: str) -> None:
    """A reply of round 1 that is repeated in round 2, before the right one."""
    old: list[ClientReply] = []

    def late(reply: ClientReply) -> Iterator[ClientReply]:
        old.append(reply)
        if reply.client == 1 and reply.round == 2:
            yield next(r for r in old if r.client == 1)
        yield reply

    fed = with_changed_replies(federation(name, engine, absence=[]), late)
    _, reports = run_rounds(fed)
    assert [list(report.refused) for report in reports] == [
        [],
        [Refusal(1, "train", "round: expected an answer to round 2, found one to 1")],
    ]
    assert_same(with_changed_replies(federation(name, engine, absence=[]), late), federation(name, engine, absence=[]))


@pytest.mark.parametrize(
    ("other", "reason"),
    [(7, "expected a number in 0..2, found 7"), (-2, "expected a number in 0..2, found -2"), (10**30, "found 1000")],
)
def test_an_unknown_client_is_refused(name: str, engine: str, other: int, reason: str) -> None:
    fed = with_changed_replies(federation(name, engine, absence=[]), replace_fields(2, client=other))
    snap, (report, *_) = run_rounds(fed, 1)
    assert (len(report.refused), report.refused[0].client) == (1, -1)
    assert reason in report.refused[0].reason
    assert (snap.answered, snap.absent, report.refused_clients) == ({0, 1}, {2}, [])


def test_a_client_that_was_not_asked_is_refused(name: str, engine: str) -> None:
    """Client 2 is absent in round 2."""

    def forge_client_2(reply: ClientReply) -> Iterator[ClientReply]:
        yield reply
        if reply.round == 2 and reply.client == 0:
            yield reply._replace(client=2)

    snap, reports = run_rounds(with_changed_replies(federation(name, engine), forge_client_2))
    assert [r.reason for r in reports[1].refused] == ["client: expected one that was asked, found 2"]
    assert (snap.sampled, snap.answered, snap.absent) == ({0, 1}, {0, 1}, {2})


@pytest.mark.parametrize("rows", [0, -1, 10**9])
def test_a_number_of_rows_out_of_range_is_refused(name: str, engine: str, rows: int) -> None:
    fed = with_changed_replies(federation(name, engine, absence=[]), replace_fields(1, rows=rows))
    _, (report, *_) = run_rounds(fed, 1)
    assert [r.reason for r in report.refused] == [f"rows: expected 1 to 10,000,000, found {rows:,}"]


def test_clients_are_weighted_by_the_rows_they_report(engine: str) -> None:
    """Client 1, which has one row, reports 22, twice as many as client 0; the server uses this number."""
    fed = with_changed_replies(federation("fedavg", engine, absence=[]), replace_fields(1, rows=22))
    weights: dict[int, State] = {}

    def record(reply: ClientReply) -> Iterator[ClientReply]:
        weights[reply.client] = tree_map(torch.clone, reply.message["average"]["weights"])
        yield reply

    snap, _ = run_rounds(with_changed_replies(fed, record), 1)
    for key, tensor in snap.model.items():
        mean = (11 * weights[0][key] + 22 * weights[1][key] + 6 * weights[2][key]) / 39
        torch.testing.assert_close(tensor, mean)


@pytest.mark.parametrize("when", ["before round", "after merge"])
def test_a_newcomer_that_did_not_answer_the_exchange_is_asked_again(engine: str, fedavg_with: Any, when: Any) -> None:
    """Client 1 answers to training in round 1, but not to the exchange."""
    asked: list[list[int]] = []

    class Digest(us.Part):
        exchange = us.Exchange(when, who="newcomers")
        shares = {"digest": us.Artefact("digest")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"digest": torch.zeros(2)}, {}

    fed = federation(fedavg_with(Digest), engine, absence=[])
    share = fed.engine.share

    def watched(round: int, part: str, received: Any, clients: list[int], states: Any) -> Any:
        asked.append(clients)
        return (r for r in share(round, part, received, clients, states) if (r.client, r.round) != (1, 1))

    fed.engine.share = watched  # type: ignore[method-assign]
    snap, _ = run_rounds(fed, 3)
    assert asked == [[0, 1, 2], [1], []]
    assert snap.newcomers_met == {"spy": {0, 1, 2}}


def test_newcomers_of_a_round_below_the_quorum_are_asked_later(engine: str, fedavg_with: Any) -> None:
    class Digest(us.Part):
        exchange = us.Exchange("after merge", who="newcomers")
        shares = {"digest": us.Artefact("digest")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            return {"digest": torch.zeros(2)}, {}

    fed = federation(fedavg_with(Digest), engine, absence=[], quorum=0.9)
    share = fed.engine.share
    asked: list[tuple[int, list[int]]] = []

    def watched(round: int, part: str, received: Any, clients: list[int], states: Any) -> Any:
        asked.append((round, clients))
        return share(round, part, received, clients, states)

    def only_client_2(reply: ClientReply) -> Iterator[ClientReply]:
        if reply.round > 1 or reply.client == 2:
            yield reply

    fed.engine.share = watched  # type: ignore[method-assign]
    run_rounds(with_changed_replies(fed, only_client_2), 1)
    assert asked == []
    fed.store.rollback()
    run_rounds(fed, 2)
    assert asked == [(2, [0, 1])]  # client 2 answered in round 1, before the part's first exchange


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused(name: str, engine: str, value: float) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        yield with_weights(reply, lambda w: w | {"2.bias": w["2.bias"] * value}) if reply.client == 0 else reply

    wrong = with_changed_replies(federation(name, engine, absence=[]), spoil)
    snap, _ = assert_same(wrong, with_changed_replies(federation(name, engine, absence=[]), without_reply_of(0)))
    sent = [(e.artefact, e.bytes) for e in snap.ledger.entries if e.client == 0 and e.direction == "up"]
    assert ("weights", nbytes(snap.model)) in sent  # the refused message is listed because it was sent
    assert ("numbers: expected finite ones, found nan or infinity", 0) in sent


def nbytes(state: State) -> int:
    return sum(t.nbytes for t in state.values())


def test_a_norm_above_the_limit_is_refused(name: str, engine: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        yield with_weights(reply, lambda w: tree_map(lambda t: t + 1e4, w)) if reply.client == 0 else reply

    wrong = with_changed_replies(federation(name, engine, absence=[], max_norm=100.0), spoil)
    _, reports = run_rounds(wrong, 1)
    assert [r.client for r in reports[0].refused] == [0]
    assert reports[0].refused[0].reason.startswith("average/weights: expected a norm of at most 100, found ")
    again = with_changed_replies(federation(name, engine, absence=[], max_norm=100.0), spoil)
    assert_same(again, with_changed_replies(federation(name, engine, absence=[]), without_reply_of(0)))


def test_a_loss_that_is_not_finite_stops_the_run_or_is_refused(name: str, engine: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        bad = {key: term * math.nan for key, term in reply.terms.items()}
        yield reply._replace(terms=bad) if reply.client == 0 else reply

    with pytest.raises(NotFiniteError, match=r"round 1, client 0: expected finite loss terms, found .* nan"):
        run_rounds(with_changed_replies(federation(name, engine, absence=[]), spoil), 1)
    wrong = with_changed_replies(federation(name, engine, absence=[], on_bad_loss="refuse"), spoil)
    _, (report, _) = run_rounds(wrong)
    assert [(r.client, r.reason.split(",")[0]) for r in report.refused] == [(0, "loss: expected finite terms")]
    assert report.terms.keys() == {1, 2}
    again = with_changed_replies(federation(name, engine, absence=[], on_bad_loss="refuse"), spoil)
    assert_same(again, with_changed_replies(federation(name, engine, absence=[]), without_reply_of(0)))


def test_a_run_in_which_no_loss_is_finite_stops(engine: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        yield reply._replace(terms={key: term * math.nan for key, term in reply.terms.items()})

    fed = with_changed_replies(federation("fedavg", engine, absence=[], on_bad_loss="refuse"), spoil)
    with pytest.raises(NotFiniteError, match="round 1: no reply was accepted; client 0: loss: expected finite"):
        run_rounds(fed, 1)


@pytest.mark.parametrize(("quorum", "merged"), [(None, True), (0.3, True), (0.34, False), (0.5, False)])
def test_a_round_below_the_quorum_changes_no_state(name: str, engine: str, quorum: float | None, merged: bool) -> None:
    """In round 2 one of three sampled clients answers; round 1 is complete."""

    def only_client_2(reply: ClientReply) -> Iterator[ClientReply]:
        if reply.round == 1 or reply.client == 2:
            yield reply

    fed = with_changed_replies(federation(name, engine, absence=[], quorum=quorum), only_client_2)
    before, _ = fed.run_round(fed.start())
    fed.store.commit()
    states = {k: tree_map(torch.clone, fed.store.get(k)) for k in range(3)}
    after, report = fed.run_round(before)
    fed.store.commit()
    assert report.below_quorum is not merged
    changed = [key for key in before.model if not torch.equal(before.model[key], after.model[key])]
    assert bool(changed) is merged
    assert (after.round, after.sampled, after.answered, after.absent) == (2, {0, 1, 2}, {2}, {0, 1})
    if not merged:
        assert after.parts == before.parts
        for k in range(3):
            one, other = flatten(states[k]), flatten(fed.store.get(k))
            assert all(torch.equal(one[key], other[key]) for key in one)


def test_quorum_is_a_share_of_the_sampled() -> None:
    policy = ReplyPolicy(quorum=0.5)
    assert [policy.reaches_quorum(10, n) for n in (0, 4, 5, 10)] == [False, False, True, True]
    exact = ((0.07, 100, 7), (0.55, 100, 55), (0.28, 25, 7), (0.14, 50, 7))
    assert all(
        ReplyPolicy(quorum=q).reaches_quorum(n, k) and not ReplyPolicy(quorum=q).reaches_quorum(n, k - 1)
        for q, n, k in exact
    )
    assert not ReplyPolicy(quorum=0.01).reaches_quorum(10, 0)
    assert ReplyPolicy().reaches_quorum(10, 0)
    assert policy.reaches_quorum(0, 0)  # no client was sampled


def test_reply_settings_are_in_the_identity_only_if_set() -> None:
    plain = Experiment()
    assert not {"quorum", "on_bad_loss", "max_norm"} & plain.identity_settings().keys()
    names = {Experiment(**{key: value}).identity() for key, value in (("quorum", 0.5), ("max_norm", 3.0))}
    assert len(names | {plain.identity(), Experiment(on_bad_loss="refuse").identity()}) == 4


def test_an_exchange_after_training_is_checked_against_its_contract(engine: str) -> None:
    """All or nothing: FedCurv's weights are not merged either, and its new state is discarded."""

    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        shared: Any = {part: dict(sent) for part, sent in reply.shared.items()}
        if reply.client == 0:
            shared["curv"]["du"] = {key: t[None] for key, t in shared["curv"]["du"].items()}
        yield reply._replace(shared=shared)

    wrong = with_changed_replies(federation("fedcurv", engine, absence=[]), spoil)
    snap, _ = assert_same(wrong, with_changed_replies(federation("fedcurv", engine, absence=[]), without_reply_of(0)))
    reasons = [e.artefact for e in snap.ledger.entries if e.kind == REFUSED]
    assert reasons == ["curv/du: 0.0.weight: expected float64 [6, 5], found float64 [1, 6, 5]"]


def test_stand_ins_of_two_parts_for_one_client_are_refused(fedavg_with: Any) -> None:
    class Double(us.Part):
        def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
            x = torch.zeros(2, 5, dtype=torch.float64)
            return {k: us.StandIn(x, torch.zeros(2, dtype=torch.int64), 2) for k in absent}

    method = [*fedavg_with(Double).split("+"), "test-digest"]
    fed = federation(method, "loop")
    with pytest.raises(
        UserError, match=r"client 2: expected at most one part to provide a stand-in, found .* and .*; remove"
    ):
        run_rounds(fed)


def test_a_sampled_client_without_a_reply_counts_as_absent_for_stand_ins(engine: str, fedavg_with: Any) -> None:
    requested: list[list[int]] = []

    class Watch(us.Part):
        def stand_ins(self, server: us.Server, absent: list[int]) -> dict[int, us.StandIn]:
            requested.append(absent)
            return {}

    run_rounds(with_changed_replies(federation(fedavg_with(Watch), engine), without_reply_of(1)))
    assert requested == [[1], [1, 2]]


# Replies as bytes, and random replies.


def federation_and_request(name: str) -> tuple[Federation, Request]:
    """A federation and the request to its client 0."""
    fed = federation(name, "loop", absence=[])
    snap = fed.start()
    return fed, Request("train", 1, 0, fed.received(snap))


def inbox_of(fed: Federation, **policy: Any) -> Inbox:
    """The inbox of round 1's training."""
    snap = replace(fed.start(), round=1, ledger=Ledger())
    fed = replace(fed.at_round(1), policy=ReplyPolicy(**policy))
    received = fed.received(snap)
    inbox = fed.new_inbox(snap, "train", [0, 1, 2], fed.training_contract(1, received), RoundReport())
    expect_after_training(fed, 1, received, inbox)
    return inbox


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "flea", "fedavg-topk", "fedavg-int8", "fedcurv"])
def test_a_client_that_gets_bytes_replies_as_in_the_engine(method: str) -> None:
    fed, request = federation_and_request(method)
    context = fed.engine.context  # type: ignore[attr-defined]
    state = fed.store.get(0)
    expected = serve(context, request, state).reply
    data, new_state = serve_bytes(context, encode_request(request), state)
    contract = fed.training_contract(1, request.received)(expected.rows)
    decoded = decode_reply(data, contract.max_bytes + 2**20)
    for one, other in (
        (expected.message, decoded.message),
        (expected.terms, decoded.terms),
        (expected.client_state, new_state),
    ):
        a, b = flatten(one), flatten(other)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert (decoded.client, decoded.round, decoded.rows, decoded.client_state) == (0, 1, expected.rows, {})
    assert inbox_of(fed).receive(decoded)


def test_a_request_is_decoded_from_its_bytes() -> None:
    _, request = federation_and_request("scaffold")
    decoded = decode_request(encode_request(request))
    assert decoded[:3] == request[:3]
    one, other = flatten(request.received._asdict()), flatten(decoded.received._asdict())
    assert one.keys() == other.keys()
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_too_many_bytes_are_refused_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, request = federation_and_request("fedavg")
    data = encode_reply(serve(fed.engine.context, request, {}).reply)  # type: ignore[attr-defined]
    limit = fed.training_contract(1, request.received)(11).max_bytes
    assert len(data) <= limit
    monkeypatch.setattr("unskew.wire.requests_and_replies._read_tensors", lambda data: pytest.fail("parsed"))
    with pytest.raises(RefusedError, match=f"expected at most {limit:,} bytes, found {limit + 1:,}"):
        decode_reply(data + b"x" * (limit + 1 - len(data)), limit)


def test_bytes_from_another_sender_are_refused() -> None:
    fed, request = federation_and_request("scaffold")
    data = encode_reply(serve(fed.engine.context, request, fed.store.get(0)).reply)  # type: ignore[attr-defined]
    inbox = inbox_of(fed)
    assert not inbox.receive_bytes(data, sender=1)
    assert inbox.report.refused[0] == Refusal(1, "train", "client: expected 1, which sent this, found 0")
    assert inbox.receive_bytes(data, sender=0)
    assert not inbox.receive_bytes(data, sender=0)
    assert inbox.answered == {0}


def test_the_inbox_refuses_oversized_bytes_before_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, request = federation_and_request("fedavg")
    data = encode_reply(serve(fed.engine.context, request, {}).reply)  # type: ignore[attr-defined]
    monkeypatch.setattr("unskew.wire.requests_and_replies._read_tensors", lambda data: pytest.fail("parsed"))
    inbox = inbox_of(fed)
    assert not inbox.receive_bytes(data + b"x" * 2**20, sender=0)
    assert "bytes, found" in inbox.report.refused[0].reason
    assert inbox.snap.ledger.bytes_up == len(data) + 2**20


def test_a_client_that_gets_bytes_stores_the_state_of_all_parts() -> None:
    """The new state has an entry for each part with state."""
    fed, request = federation_and_request("scaffold+moon")
    context = fed.engine.context  # type: ignore[attr-defined]
    _, new_state = serve_bytes(context, encode_request(request), {})
    assert new_state.keys() == fed.store.get(0).keys() == {"scaffold", "moon"}


WRONG_NAMES = {
    "a tensor instead of the terms": {"terms": torch.zeros(1)},
    "a tensor instead of the shared artefacts": {"shared": torch.zeros(1)},
    "a tensor instead of the message": {"message": torch.zeros(1)},
    "a tensor that is a folder too": {"message/average/weights/2.bias/hidden": torch.zeros(100)},
    "a part that is a tensor": {"message/average": torch.zeros(1)},
    "another section": {"junk": torch.zeros(1)},
    "too many terms": {f"terms/ce {i}": torch.zeros(()) for i in range(100)},
    "a term of a part without a loss": {"terms/average": torch.zeros(())},
    "a term with an odd name": {"terms/ce [/x]\n": torch.zeros(())},
    "a term of an odd type": {"terms/ce": torch.zeros((), dtype=torch.int16)},
}


@pytest.mark.parametrize("fault", WRONG_NAMES)
def test_tensors_with_other_names_are_refused(fault: str) -> None:
    fed, reply = valid_reply("fedavg")
    body = flatten({"message": reply.message, "terms": reply.terms, "shared": reply.shared})
    folders = [name for name in body if any(name.startswith(f"{new}/") for new in WRONG_NAMES[fault])]
    body = {name: t for name, t in body.items() if name not in folders} | WRONG_NAMES[fault]
    inbox = inbox_of(fed)
    assert not inbox.receive_bytes(encode({"round": 1, "client": 0, "rows": 11}, body), sender=0)
    assert not inbox.answered


@pytest.mark.parametrize(
    "head",
    [b'{"round": 1, "client": 0, "rows": 11, "x": 1}', b'{"round": 1, "client": 0, "rows": 1, "rows": 11}', b"[]"],
)
def test_headers_with_other_fields_are_refused(head: bytes) -> None:
    fed, reply = valid_reply("fedavg")
    plain = encode_reply(reply)
    (length,) = struct.unpack_from("<I", plain)
    inbox = inbox_of(fed)
    assert not inbox.receive_bytes(struct.pack("<I", len(head)) + head + plain[4 + length :], sender=0)


@pytest.mark.parametrize("name", ["flea", "feddata"])
def test_shared_artefacts_need_equally_many_rows_and_valid_labels(name: str) -> None:
    fed = federation(name, "loop", absence=[])
    part = next(p for p in fed.method.parts if p.shares)
    snap = replace(fed.start(), round=1, ledger=Ledger())
    (reply,) = fed.engine.share(1, part.name, fed.received(snap), [0], fed.store.get)
    sent: Any = reply.message[part.name]
    rows = next(key for key in sent if key != "labels")
    faults = {
        "no labels": {"labels": sent["labels"][:0]},
        "no rows": {rows: sent[rows][:0]},
        "more rows": {key: torch.cat([t, t]) for key, t in sent.items()},
        "class 999": {"labels": torch.full_like(sent["labels"], 999)},
        "class -5": {"labels": torch.full_like(sent["labels"], -5)},
    }
    contract = exchange_contract(fed, 1, fed.received(snap), part)
    for fault, change in faults.items():
        inbox = fed.new_inbox(snap, "after merge", [0, 1, 2], contract, RoundReport(), part=part)
        assert not inbox.receive(reply._replace(message={part.name: sent | change})), fault
    inbox = fed.new_inbox(snap, "after merge", [0, 1, 2], contract, RoundReport(), part=part)
    assert inbox.receive(reply)


def test_a_reported_number_of_rows_hardly_affects_the_servers_work(fedavg_with: Any) -> None:
    """A bound for ten million rows is derived from ten thousand; an impossible number is the client's fault."""
    derived: list[int] = []

    class Share(us.Part):
        exchange = us.Exchange("after training")
        shares = {"x": us.Artefact("raw", reduce="rows")}

        def share(self, client: us.Client) -> tuple[dict, State]:
            x, _, keep = client.rows(client.positions)
            derived.append(len(x))
            return {"x": us.Rows(x, keep & (x.sum(1).topk(2).values[0] > -1e9))}, {}

    fed = federation(fedavg_with(Share), "loop", absence=[])
    contract = exchange_contract(fed, 1, fed.received(fed.start()), fed.method.parts[-1])
    spec = contract(10_000_000).specs["spy"]["x"]
    assert (spec.max_rows, max(derived)) == (10_000_000, 10_000)  # type: ignore[union-attr]
    with pytest.raises(RefusedError, match="rows: expected a number for which the method can send something, found 1"):
        contract(1)


def test_running_statistics_count_in_the_norm(engine: str) -> None:
    def spoil(reply: ClientReply) -> Iterator[ClientReply]:
        name = "0.1.running_var"
        yield with_weights(reply, lambda w: w | {name: w[name] + 1e6}) if reply.client == 0 else reply

    fed = with_changed_replies(federation("fedavg", engine, norm=True, absence=[], max_norm=1e3), spoil)
    _, (report,) = run_rounds(fed, 1)
    assert [r.client for r in report.refused] == [0]


def test_the_norm_limit_of_a_stand_in_applies_to_its_update() -> None:
    """The model's norm is above the limit, that of every update below it."""
    fed = federation("test-digests", "loop", max_norm=1.9)
    assert math.sqrt(sum(float(t.pow(2).sum()) for t in fed.start().model.values())) > 1.9
    _, reports = run_rounds(fed)
    assert [list(report.refused) for report in reports] == [[], []]


def encode(head: dict[str, Any], body: State) -> bytes:
    header = json.dumps(head).encode()
    return struct.pack("<I", len(header)) + header + to_bytes(body)


def paths(reply: ClientReply) -> list[str]:
    return list(flatten({"message": reply.message, "shared": reply.shared}))


def change_tensor(reply: ClientReply, path: str, change: Callable[[dict, str], None]) -> ClientReply:
    """The reply with the tensor at one path changed."""

    def copied(tree: Any) -> Any:
        return {key: copied(inner) for key, inner in tree.items()} if isinstance(tree, dict) else tree

    tree = {"message": copied(reply.message), "shared": copied(reply.shared)}
    *folders, name = path.split("/")
    at: Any = tree
    for folder in folders:
        at = at[folder]
    change(at, name)
    return reply._replace(message=tree["message"], shared=tree["shared"], finite=None)


def spoilt(draw: Any, t: Tensor, kind: str) -> Tensor | None:
    """An invalid version of a tensor, or None if this kind of fault is impossible for it."""
    if kind == "reshape":
        extra = draw(st.integers(1, 3))
        return torch.zeros(*t.shape, extra + 1, dtype=t.dtype) if t.ndim else torch.zeros(extra, dtype=t.dtype)
    if kind == "retype":
        return t.to(draw(st.sampled_from([d for d in (torch.float16, torch.float32, torch.int32) if d != t.dtype])))
    if not t.is_floating_point() or not t.numel():
        return None
    flat = t.flatten().clone()
    place = draw(st.integers(0, t.numel() - 1))
    flat[place] = {"nan": math.nan, "inf": draw(st.sampled_from([math.inf, -math.inf])), "huge": 1e9}[kind]
    return flat.view(t.shape)


MUTATED = ("fedavg", "scaffold", "flea", "fedavg-topk", "fedcurv")  # fedcurv has an exchange after training
KINDS = ("drop", "add", "reshape", "retype", "nan", "inf", "huge", "round", "client", "rows", "terms")
LIMITED = ("average/weights", "scaffold/dc", "curv/du", "curv/dv")
VALID_REPLIES: dict[str, tuple[Federation, ClientReply]] = {}


def valid_reply(name: str) -> tuple[Federation, ClientReply]:
    if name not in VALID_REPLIES:
        fed, request = federation_and_request(name)
        VALID_REPLIES[name] = fed, serve(fed.engine.context, request, fed.store.get(0)).reply  # type: ignore[attr-defined]
    return VALID_REPLIES[name]


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_mutated_reply_is_accepted(data: st.DataObject) -> None:
    """Drop, add, reshape, retype, NaN, infinity, huge norm, other round, client, rows or loss terms."""
    draw = data.draw
    name, kind = draw(st.sampled_from(MUTATED)), draw(st.sampled_from(KINDS))
    fed, reply = valid_reply(name)
    path = draw(st.sampled_from(paths(reply)))
    if kind == "round":
        reply = reply._replace(round=draw(st.integers(-3, 9).filter(lambda r: r != 1)))
    elif kind == "client":
        reply = reply._replace(client=draw(st.one_of(st.integers(-9, -1), st.integers(3, 2**70))))
    elif kind == "rows":
        reply = reply._replace(rows=draw(st.one_of(st.integers(-9, 0), st.integers(10_000_001, 2**70))))
    elif kind == "terms":
        terms = draw(st.sampled_from([{"unknown": torch.tensor(1.0)}, {"ce": torch.zeros(2)}, {"ce": torch.tensor(1)}]))
        reply = reply._replace(terms=terms)
    elif kind == "drop":
        reply = change_tensor(reply, path, lambda at, key: at.pop(key))
    elif kind == "add":
        extra = draw(st.text(min_size=1, max_size=8).filter(lambda key: "/" not in key))
        if f"{path.rpartition('/')[0]}/{extra}" in paths(reply):
            return
        reply = change_tensor(reply, path, lambda at, key: at.update({extra: torch.zeros(1)}))
    else:
        tensor = flatten({"message": reply.message, "shared": reply.shared})[path]
        bad = spoilt(draw, tensor, kind)
        if bad is None:
            return
        reply = change_tensor(reply, path, lambda at, key: at.update({key: bad}))
    inbox = inbox_of(fed, max_norm=dict.fromkeys(LIMITED, 1000000.0))
    assert not inbox.receive(reply)
    assert not inbox.messages.clients
    assert not inbox.answered
    assert len(inbox.report.refused) == 1
    assert all(isinstance(messages, RoundMessages) and not messages.clients for _, _, messages in inbox.shares.values())


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_mutated_bytes_neither_crash_nor_pass_with_another_form(data: st.DataObject) -> None:
    """Truncated, extended or overwritten bytes are refused, or decoded to a reply that the inbox checks."""
    draw = data.draw
    name = draw(st.sampled_from(MUTATED))
    fed, reply = valid_reply(name)
    plain = encode_reply(reply)
    kind = draw(st.sampled_from(("cut", "longer", "overwrite", "noise", "header")))
    if kind == "cut":
        mutated = plain[: draw(st.integers(0, len(plain) - 1))]
    elif kind == "longer":
        mutated = plain + draw(st.binary(min_size=1, max_size=64))
    elif kind == "overwrite":
        position, written = draw(st.integers(0, len(plain) - 1)), draw(st.binary(min_size=1, max_size=16))
        mutated = plain[:position] + written + plain[position + len(written) :]
    elif kind == "noise":
        mutated = draw(st.binary(max_size=300))
    else:
        value = draw(
            st.one_of(st.none(), st.booleans(), st.text(), st.integers(), st.lists(st.integers()), st.floats())
        )
        head = {"round": 1, "client": 0, "rows": 11} | {draw(st.sampled_from(("round", "client", "rows"))): value}
        header = json.dumps(head).encode()
        (length,) = struct.unpack_from("<I", plain)
        mutated = struct.pack("<I", len(header)) + header + plain[4 + length :]
    try:
        decoded = decode_reply(mutated, len(plain) + 2**16)
    except RefusedError:
        return
    assert kind not in ("cut", "longer", "noise")
    inbox = inbox_of(fed)
    if inbox.receive(decoded):  # other numbers in the agreed form
        assert paths(decoded) == paths(reply) or sorted(paths(decoded)) == sorted(paths(reply))
        assert (decoded.round, decoded.client in (0, 1, 2), decoded.rows >= 1) == (1, True, True)
