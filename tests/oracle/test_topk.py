"""Top-k: the largest entries travel, the rest is remembered and sent later."""

import re
from dataclasses import replace

import pytest
import torch
from sealing import outgoing, tampered, travelled
from toolbox import equal, federation, last_model, messages, played

from unskew.base.errors import UserError
from unskew.base.tree import size_in_bytes
from unskew.methods.topk import TopK, index_type, largest

QUARTER = TopK(fraction=0.25)  # two of eight entries
ZERO = {"w": torch.zeros(8)}


def test_two_rounds_by_hand() -> None:
    """g = 4 -3 2 1 ...: 4 and -3 go. Then 0.5 everywhere: the memory makes 2.5 and 1.5 the largest."""
    first = torch.tensor([4.0, -3.0, 2.0, 1.0, 0, 0, 0, 0])
    wire, opened, state = travelled(QUARTER, outgoing({"w": first}, ZERO, dict(ZERO)))
    assert wire["w at"].tolist() == [0, 1]
    assert wire["w values"].tolist() == [4.0, -3.0]
    assert opened["w"].tolist() == [4.0, -3.0, 0, 0, 0, 0, 0, 0]
    assert state["w"].tolist() == [0, 0, 2.0, 1.0, 0, 0, 0, 0]
    wire, opened, state = travelled(QUARTER, outgoing({"w": opened["w"] + 0.5}, opened, state))
    assert wire["w at"].tolist() == [2, 3]
    assert wire["w values"].tolist() == [2.5, 1.5]
    assert opened["w"].tolist() == [4.0, -3.0, 2.5, 1.5, 0, 0, 0, 0]
    assert state["w"].tolist() == [0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0.5]


def test_what_was_sent_and_the_memory_add_up_to_all_updates() -> None:
    generator, state, total, sent = torch.Generator().manual_seed(0), dict(ZERO), torch.zeros(8), torch.zeros(8)
    for _ in range(6):
        d = torch.randint(-9, 10, (8,), generator=generator).float()
        _, opened, state = travelled(QUARTER, outgoing({"w": d}, ZERO, state))
        total, sent = total + d, sent + opened["w"]
        assert torch.equal(sent + state["w"], total)


def test_of_equals_the_first_are_taken_and_places_are_in_order() -> None:
    assert largest(torch.tensor([1.0, -5, 2, -2, 2, 0, 3]), 3).tolist() == [1, 2, 6]
    assert largest(torch.zeros(5), 2).tolist() == [0, 1]
    assert largest(torch.tensor([1.0, torch.nan, 9.0, torch.nan]), 2).tolist() == [1, 3]  # it must be sent to be seen


def test_an_index_takes_the_bytes_that_its_tensor_asks_for() -> None:
    assert [index_type(n).itemsize for n in (1, 256, 257, 65536, 65537, 2**31, 2**31 + 1)] == [1, 1, 2, 2, 4, 4, 8]


def test_places_beyond_32767_survive() -> None:
    d = torch.zeros(65536)
    d[[1, 40000, 65535]] = torch.tensor([1.0, 2.0, 3.0])
    start = {"w": torch.zeros_like(d)}
    wire, opened, _ = travelled(TopK(fraction=3 / 65536), outgoing({"w": d}, start, start))
    assert size_in_bytes(wire) == 3 * (2 + 4)
    assert torch.equal(opened["w"], d)


def test_bytes_in_the_ledger() -> None:
    """A fifth in float32: 30, 6, 18 and 3 entries make 6, 1, 4 and 1 of five bytes each."""
    fed = federation([{"fedavg-topk": {"fraction": 0.2}}], precision="float32")
    *_, (snap, _) = played(fed, 1)
    entries = [e for e in snap.ledger.entries if (e.direction, e.part) == ("up", "average")]
    assert {e.bytes for e in entries} == {(6 + 1 + 4 + 1) * 5}
    assert size_in_bytes(messages(snap)["0"]) == entries[0].bytes
    assert size_in_bytes(fed.store.get(0)["topk"]) == 57 * 4


def test_a_tensor_that_would_not_get_smaller_is_sent_in_full() -> None:
    """0.9 of 8 float32 entries: 7 of 5 bytes against 32."""
    wire, opened, state = travelled(TopK(fraction=0.9), outgoing({"w": torch.arange(8.0)}, ZERO, {}))
    assert list(wire) == ["w"]
    assert torch.equal(opened["w"], torch.arange(8.0))
    assert state == {}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fednova"])
def test_all_entries_are_the_parent_bit_for_bit(method: str, norm: bool) -> None:
    local = {"epochs": 2, "batch": 4, "lr": 0.1}
    whole = federation([method, {"topk": {"fraction": 1.0}}], norm=norm, local=local)
    assert equal(last_model(whole, 3), last_model(federation(method, norm=norm, local=local), 3))


def test_a_refused_message_leaves_the_memory_as_it_was() -> None:
    fed = replace(federation("fedavg-topk"), keeps=lambda round, client: True)
    snap, _ = fed.play(fed.start())
    fed.store.commit()
    before = fed.store.get(0)["topk"]
    train = fed.engine.train

    def broken(*args: object) -> object:
        for outcome in train(*args):  # type: ignore[arg-type]
            values = outcome.message["average"]["weights"]["0.0.weight values"]  # type: ignore[index,call-overload]
            values[0] = torch.nan if outcome.client == 0 else values[0]
            yield outcome

    fed.engine.train = broken  # type: ignore[assignment]
    _, report = fed.play(snap)
    fed.store.commit()
    assert report.dropped == [0]
    assert equal(fed.store.get(0)["topk"], before)


def places(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"w at": places(1, 8)}, "w: expected indices within the tensor, each larger"),
        ({"w at": places(3, 3)}, "each larger than the one before"),
        ({"w at": places(3, 1)}, "each larger than the one before"),
        ({"w at": torch.tensor([0, 1])}, "w at: expected torch.uint8 .*, found torch.int64"),
        ({"w values": torch.zeros(3)}, r"w values: expected torch.float32 of shape \[2\], found .*\[3\]"),
        ({"w values": None}, "found nothing"),
        ({"v at": places(1, 2)}, "found 'v at' too"),
    ],
)
def test_what_was_not_agreed_on_is_refused(changes: dict, found: str) -> None:
    with pytest.raises(UserError, match=found):
        QUARTER.open(tampered(QUARTER, outgoing({"w": torch.arange(8.0)}, ZERO, dict(ZERO)), **changes))


def test_a_broken_message_is_refused_by_name() -> None:
    fed = federation("fedavg-topk")
    train = fed.engine.train

    def broken(*args: object) -> object:
        for outcome in train(*args):  # type: ignore[arg-type]
            yield outcome._replace(message={"average": {"weights": {}}}) if outcome.client == 2 else outcome

    fed.engine.train = broken  # type: ignore[assignment]
    _, report = fed.play(fed.start())
    assert [(refusal.client, refusal.phase) for refusal in report.refused] == [(2, "train")]
    assert re.search(r"average/weights: tensors: expected .*, found no 0.0.weight at", report.refused[0].reason)
