"""`seal` and `open` combined with other owners, further artefacts, stand-ins, workers and a second seal."""

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
    """A part that halves the update on the client and has no `open`, like a defence."""
    method_registry.method_names()

    @us.part("test-half")
    class Half(us.Part):
        def seal(self, outgoing: us.OutgoingUpdate) -> tuple[Message, State]:
            start, update = outgoing.start, outgoing.update
            sent = {n: start[n] + d / 2 for n, d in update.items()}
            return {"average": {"weights": outgoing.message["average"]["weights"] | sent}}, {}  # type: ignore[operator]

    yield "test-half"
    del method_registry.PARTS["test-half"]


def sent(snap: Snapshot) -> dict[int, Message]:
    """Each client's message after training in the last round."""
    messages: dict[int, Message] = {}
    for entry, _, value in snap.ledger.recorded:
        if (entry.direction, entry.phase) == ("up", "train"):
            messages.setdefault(entry.client, {}).setdefault(entry.part, {})[entry.artefact] = value
    return messages


def state_and_ledger(fed: Federation, rounds: int = 2) -> tuple[dict[str, torch.Tensor], list]:
    """Model, server and client state after some rounds, and the ledger."""
    snap, entries = fed.start(), []
    for _ in range(rounds):
        snap, _ = fed.run_round(snap)
        fed.store.commit()
        entries += snap.ledger.entries
    clients = {str(k): tree for k, tree in fed.store.entries.items()}
    return flatten({"model": snap.model, "parts": snap.parts, "clients": clients}), entries


@pytest.mark.parametrize("method", [*SUMS, "test-digests+topk", "test-owned+int8", "test-all+topk"])
@pytest.mark.parametrize("norm", [False, True], ids=["no-norm", "batchnorm"])
def test_engines_agree_on_sums(method: str, norm: bool) -> None:
    keys = {"local": {"epochs": 2, "batch": 4, "lr": 0.1}}
    plain, sent = state_and_ledger(federation(method, "plain", norm, **keys))
    for engine in ("loop", "stacked"):
        state, entries = state_and_ledger(federation(method, engine, norm, **keys))
        assert sent == entries
        torch.testing.assert_close(state, plain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk"])
def test_two_workers_send_and_store_the_same_bits_as_one(codec: str) -> None:
    one, two = (
        prepare(
            experiment(f"fedavg-{codec}", rounds=2).model_copy(
                update={"engine": experiment("fedavg").engine.model_copy(update={"workers": workers})}
            ),
            data=dataset(),
            model=network(False),
        ).federation
        for workers in (1, 2)
    )
    try:
        (single, sent), (double, also_sent) = state_and_ledger(one), state_and_ledger(two)
    finally:
        one.engine.close()
        two.engine.close()
    assert sent == also_sent
    assert single.keys() == double.keys()
    assert all(torch.equal(single[name], double[name]) for name in single)


def test_a_stand_in_is_not_sealed(engine: str) -> None:
    """It is on the server already: nothing is sent, and its error memory stays empty."""
    fed = federation("test-digests+topk", engine)
    state_and_ledger(fed)
    assert ~2 in fed.store.entries
    assert not any(t.any() for t in fed.store.entries[~2]["topk"].values())
    assert any(t.any() for t in fed.store.entries[0]["topk"].values())


@pytest.mark.parametrize("order", ["fedavg+test-half+bf16", "fedavg+bf16+test-half"])
def test_a_seal_without_open_comes_before_the_codec(order: str, halved: str, engine: str) -> None:
    """The codec comes last in any order of the parts, and the server merges half the update, rounded."""
    fed, plain = federation(order, engine), federation("fedavg", engine)
    assert [part.name for part in fed.method.sealing_parts] == [halved, "bf16"]
    start, (snap, _), (full, _) = plain.start().model, fed.run_round(fed.start()), plain.run_round(plain.start())
    for name, w in start.items():
        moved = (full.model[name] - w).abs().max()
        assert (snap.model[name] - w - (full.model[name] - w) / 2).abs().max() <= moved / 100


@pytest.mark.parametrize("codec", ["bf16", "int8", "topk"])
def test_a_recorded_message_is_the_sealed_one(codec: str, tmp_path: Path, engine: str) -> None:
    """It has as many bytes as the ledger lists, and can be opened."""
    settings = experiment(f"fedavg-{codec}", engine, record={"rounds": [1], "clients": [0]})
    run = us.run(settings, out=tmp_path / "run", data=dataset(), model=network(False))
    (recorded,) = recorded_messages.read(tmp_path / "run")
    wire = recorded.of(0, "up")["average"]["weights"]
    ledger = run.ledger
    rows = ledger[(ledger["round"] == 1) & (ledger["client"] == 0) & (ledger["part"] == "average")]
    assert size_in_bytes(wire) == rows[rows["direction"] == "up"]["bytes"].sum()
    fed = federation(f"fedavg-{codec}", engine)
    snap = fed.start()
    outgoing = us.OutgoingUpdate(
        {"average": {"weights": wire}}, fed.method.update_location, snap.model, fed.model.shared
    )
    opened = fed.method.sealing_parts[0].open(outgoing)["average"]["weights"]
    assert opened.keys() == snap.model.keys()  # type: ignore[union-attr]


def test_random_numbers_of_seals_do_not_change_training(engine: str) -> None:
    """Clients train on the same batches with the same masks: before rounding, int8 sends what FedAvg sends."""
    fed = replace(federation("fedavg-int8", engine), should_record=lambda round, client: True)
    plain = replace(federation("fedavg", engine), should_record=lambda round, client: True)
    sealed, unsealed = (sent(one.run_round(one.start())[0]) for one in (fed, plain))
    start = fed.start().model
    for client, message in unsealed.items():
        outgoing = us.OutgoingUpdate(sealed[client], fed.method.update_location, start, fed.model.shared)
        opened = fed.method.sealing_parts[0].open(outgoing)["average"]["weights"]
        for name, w in message["average"]["weights"].items():  # type: ignore[union-attr]
            step = (w - start[name]).abs().max() / 127
            assert (opened[name] - w).abs().max() <= 1.001 * step  # type: ignore[index,call-overload]
