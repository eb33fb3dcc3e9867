"""`seal` and `open` with every kind of sibling: other owners, further artefacts, stand-ins, workers, a second seal."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import dataset, experiment, federation, network

import unskew as us
from unskew.base.tree import Message, State, flatten, size_in_bytes
from unskew.protocol import method_registry
from unskew.results import recorded_messages
from unskew.runner.prepare_run import prepare
from unskew.server.federation import Federation
from unskew.server.snapshot import Snapshot

SUMS = ("scaffold+topk", "fednova+int8", "fednova+topk", "fedcurv+bf16", "fedavgm+int8", "fedlmd+topk", "moon+int8")


@pytest.fixture
def halved() -> Iterator[str]:
    """A part that halves the update on the client and that nobody opens, as a defence would."""
    method_registry.known()

    @us.part("test-half")
    class Half(us.Part):
        def seal(self, outgoing: us.OutgoingUpdate) -> tuple[Message, State]:
            start, update = outgoing.start, outgoing.update
            sent = {n: start[n] + d / 2 for n, d in update.items()}
            return {"average": {"weights": outgoing.message["average"]["weights"] | sent}}, {}  # type: ignore[operator]

    yield "test-half"
    del method_registry.PARTS["test-half"]


def sent(snap: Snapshot) -> dict[int, Message]:
    """What each client of the last round sent after training."""
    found: dict[int, Message] = {}
    for entry, _, value in snap.ledger.kept:
        if (entry.direction, entry.phase) == ("up", "train"):
            found.setdefault(entry.client, {}).setdefault(entry.part, {})[entry.artefact] = value
    return found


def after(fed: Federation, rounds: int = 2) -> tuple[dict[str, torch.Tensor], list]:
    """Model, server and client state after some rounds, and the ledger."""
    snap, entries = fed.start(), []
    for _ in range(rounds):
        snap, _ = fed.play(snap)
        fed.store.commit()
        entries += snap.ledger.entries
    clients = {str(k): tree for k, tree in fed.store.entries.items()}
    return flatten({"model": snap.model, "parts": snap.parts, "clients": clients}), entries


@pytest.mark.parametrize("method", [*SUMS, "test-digests+topk", "test-owned+int8", "test-all+topk"])
@pytest.mark.parametrize("norm", [False, True], ids=["no-norm", "batchnorm"])
def test_engines_agree_on_sums(method: str, norm: bool) -> None:
    keys = {"local": {"epochs": 2, "batch": 4, "lr": 0.1}}
    plain, sent = after(federation(method, "plain", norm, **keys))
    for engine in ("loop", "stacked"):
        found, also = after(federation(method, engine, norm, **keys))
        assert sent == also
        torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("code", ["bf16", "int8", "topk"])
def test_two_workers_send_and_remember_the_same_bits(code: str) -> None:
    one, two = (
        prepare(
            experiment(f"fedavg-{code}", rounds=2).model_copy(
                update={"engine": experiment("fedavg").engine.model_copy(update={"workers": workers})}
            ),
            data=dataset(),
            model=network(False),
        ).federation
        for workers in (1, 2)
    )
    try:
        (alone, sent), (together, also) = after(one), after(two)
    finally:
        one.engine.close()
        two.engine.close()
    assert sent == also
    assert alone.keys() == together.keys()
    assert all(torch.equal(alone[name], together[name]) for name in alone)


def test_a_stand_in_is_not_sealed(engine: str) -> None:
    """It is on the server already: its message is in no ledger, and its memory stays empty."""
    fed = federation("test-digests+topk", engine)
    after(fed)
    assert ~2 in fed.store.entries
    assert not any(t.any() for t in fed.store.entries[~2]["topk"].values())
    assert any(t.any() for t in fed.store.entries[0]["topk"].values())


@pytest.mark.parametrize("order", ["fedavg+test-half+bf16", "fedavg+bf16+test-half"])
def test_a_seal_without_open_comes_before_the_code(order: str, halved: str, engine: str) -> None:
    """The code is last wherever it stands, and the server merges half the update, rounded."""
    ours, plain = federation(order, engine), federation("fedavg", engine)
    assert [part.name for part in ours.method.seals] == [halved, "bf16"]
    start, (snap, _), (whole, _) = plain.start().model, ours.play(ours.start()), plain.play(plain.start())
    for name, w in start.items():
        moved = (whole.model[name] - w).abs().max()
        assert (snap.model[name] - w - (whole.model[name] - w) / 2).abs().max() <= moved / 100


@pytest.mark.parametrize("code", ["bf16", "int8", "topk"])
def test_a_recorded_message_is_what_was_sent(code: str, tmp_path: Path, engine: str) -> None:
    """Byte for byte as many as the ledger says, and a reader can open it."""
    setting = experiment(f"fedavg-{code}", engine, record={"rounds": [1], "clients": [0]})
    done = us.run(setting, out=tmp_path / "run", data=dataset(), model=network(False))
    (recorded,) = recorded_messages.read(tmp_path / "run")
    wire = recorded.of(0, "up")["average"]["weights"]
    ledger = done.ledger
    rows = ledger[(ledger["round"] == 1) & (ledger["client"] == 0) & (ledger["part"] == "average")]
    assert size_in_bytes(wire) == rows[rows["direction"] == "up"]["bytes"].sum()
    fed = federation(f"fedavg-{code}", engine)
    snap = fed.start()
    outgoing = us.OutgoingUpdate({"average": {"weights": wire}}, fed.method.update, snap.model, fed.model.shared)
    opened = fed.method.seals[0].open(outgoing)["average"]["weights"]
    assert opened.keys() == snap.model.keys()  # type: ignore[union-attr]


def test_sealing_draws_shift_no_other_draw(engine: str) -> None:
    """Clients train on the same batches with the same masks: before rounding, int8 sends what FedAvg sends."""
    fed = replace(federation("fedavg-int8", engine), keeps=lambda round, client: True)
    plain = replace(federation("fedavg", engine), keeps=lambda round, client: True)
    ours, theirs = (sent(one.play(one.start())[0]) for one in (fed, plain))
    start = fed.start().model
    for client, message in theirs.items():
        outgoing = us.OutgoingUpdate(ours[client], fed.method.update, start, fed.model.shared)
        opened = fed.method.seals[0].open(outgoing)["average"]["weights"]
        for name, w in message["average"]["weights"].items():  # type: ignore[union-attr]
            step = (w - start[name]).abs().max() / 127
            assert (opened[name] - w).abs().max() <= 1.001 * step  # type: ignore[index,call-overload]
