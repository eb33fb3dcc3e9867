"""Top-k: the largest entries are sent, the rest is remembered and sent later."""

import re
from dataclasses import replace

import pytest
import torch
from sealing import outgoing, round_trip, tampered
from toolbox import equal, federation, last_model, messages, run_rounds

from unskew.base.errors import UserError
from unskew.base.tree import size_in_bytes
from unskew.methods.topk import TopK, index_type, largest

QUARTER = TopK(fraction=0.25)  # two of eight entries
ZERO = {"w": torch.zeros(8)}


def test_two_rounds_match_a_calculation_by_hand() -> None:
    """g = 4 -3 2 1 ...: 4 and -3 are sent. Then 0.5 everywhere: with the memory, 2.5 and 1.5 are the largest."""
    first = torch.tensor([4.0, -3.0, 2.0, 1.0, 0, 0, 0, 0])
    wire, opened, state = round_trip(QUARTER, outgoing({"w": first}, ZERO, dict(ZERO)))
    assert wire["w at"].tolist() == [0, 1]
    assert wire["w values"].tolist() == [4.0, -3.0]
    assert opened["w"].tolist() == [4.0, -3.0, 0, 0, 0, 0, 0, 0]
    assert state["w"].tolist() == [0, 0, 2.0, 1.0, 0, 0, 0, 0]
    wire, opened, state = round_trip(QUARTER, outgoing({"w": opened["w"] + 0.5}, opened, state))
    assert wire["w at"].tolist() == [2, 3]
    assert wire["w values"].tolist() == [2.5, 1.5]
    assert opened["w"].tolist() == [4.0, -3.0, 2.5, 1.5, 0, 0, 0, 0]
    assert state["w"].tolist() == [0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0.5]


def test_sent_entries_and_memory_add_up_to_all_updates() -> None:
    generator, state, total, sent = torch.Generator().manual_seed(0), dict(ZERO), torch.zeros(8), torch.zeros(8)
    for _ in range(6):
        d = torch.randint(-9, 10, (8,), generator=generator).float()
        _, opened, state = round_trip(QUARTER, outgoing({"w": d}, ZERO, state))
        total, sent = total + d, sent + opened["w"]
        assert torch.equal(sent + state["w"], total)


def test_ties_take_the_first_and_indices_are_sorted() -> None:
    assert largest(torch.tensor([1.0, -5, 2, -2, 2, 0, 3]), 3).tolist() == [1, 2, 6]
    assert largest(torch.zeros(5), 2).tolist() == [0, 1]
    assert largest(torch.tensor([1.0, torch.nan, 9.0, torch.nan]), 2).tolist() == [1, 3]  # NaN is sent


def test_index_type_is_the_smallest_that_fits_the_tensor() -> None:
    assert [index_type(n).itemsize for n in (1, 256, 257, 65536, 65537, 2**31, 2**31 + 1)] == [1, 1, 2, 2, 4, 4, 8]


def test_indices_above_32767_survive() -> None:
    d = torch.zeros(65536)
    d[[1, 40000, 65535]] = torch.tensor([1.0, 2.0, 3.0])
    start = {"w": torch.zeros_like(d)}
    wire, opened, _ = round_trip(TopK(fraction=3 / 65536), outgoing({"w": d}, start, start))
    assert size_in_bytes(wire) == 3 * (2 + 4)
    assert torch.equal(opened["w"], d)


def test_ledger_counts_the_bytes_of_indices_and_values() -> None:
    """A fifth in float32: 30, 6, 18 and 3 entries make 6, 1, 4 and 1 of five bytes each."""
    fed = federation([{"fedavg-topk": {"fraction": 0.2}}], precision="float32")
    *_, (snap, _) = run_rounds(fed, 1)
    entries = [e for e in snap.ledger.entries if (e.direction, e.part) == ("up", "average")]
    assert {e.bytes for e in entries} == {(6 + 1 + 4 + 1) * 5}
    assert size_in_bytes(messages(snap)["0"]) == entries[0].bytes
    assert size_in_bytes(fed.store.get(0)["topk"]) == 57 * 4


def test_a_tensor_that_would_not_get_smaller_is_sent_in_full() -> None:
    """0.9 of 8 float32 entries: 7 of 5 bytes against 32."""
    wire, opened, state = round_trip(TopK(fraction=0.9), outgoing({"w": torch.arange(8.0)}, ZERO, {}))
    assert list(wire) == ["w"]
    assert torch.equal(opened["w"], torch.arange(8.0))
    assert state == {}


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "fednova"])
def test_fraction_one_is_the_parent_bit_for_bit(method: str, norm: bool) -> None:
    local = {"epochs": 2, "batch": 4, "lr": 0.1}
    full = federation([method, {"topk": {"fraction": 1.0}}], norm=norm, local=local)
    assert equal(last_model(full, 3), last_model(federation(method, norm=norm, local=local), 3))


def test_a_refused_message_leaves_the_memory_as_it_was() -> None:
    fed = replace(federation("fedavg-topk"), should_record=lambda round, client: True)
    snap, _ = fed.run_round(fed.start())
    fed.store.commit()
    before = fed.store.get(0)["topk"]
    train = fed.engine.train

    def broken(*args: object) -> object:
        for reply in train(*args):  # type: ignore[arg-type]
            values = reply.message["average"]["weights"]["0.0.weight values"]  # type: ignore[index,call-overload]
            values[0] = torch.nan if reply.client == 0 else values[0]
            yield reply

    fed.engine.train = broken  # type: ignore[assignment]
    _, report = fed.run_round(snap)
    fed.store.commit()
    assert report.refused_clients == [0]
    assert equal(fed.store.get(0)["topk"], before)


def indices(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w at": indices(1, 8)}, "w: expected indices within the tensor, each larger"),
        ({"w at": indices(3, 3)}, "each larger than the one before"),
        ({"w at": indices(3, 1)}, "each larger than the one before"),
        ({"w at": torch.tensor([0, 1])}, "w at: expected torch.uint8 .*, found torch.int64"),
        ({"w values": torch.zeros(3)}, r"w values: expected torch.float32 of shape \[2\], found .*\[3\]"),
        ({"w values": None}, "found nothing"),
        ({"v at": indices(1, 2)}, "found 'v at' too"),
    ],
)
def test_mismatching_tensors_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        QUARTER.open(tampered(QUARTER, outgoing({"w": torch.arange(8.0)}, ZERO, dict(ZERO)), **changes))


def test_a_broken_message_is_refused_by_name() -> None:
    fed = federation("fedavg-topk")
    train = fed.engine.train

    def broken(*args: object) -> object:
        for reply in train(*args):  # type: ignore[arg-type]
            yield reply._replace(message={"average": {"weights": {}}}) if reply.client == 2 else reply

    fed.engine.train = broken  # type: ignore[assignment]
    _, report = fed.run_round(fed.start())
    assert [(refusal.client, refusal.phase) for refusal in report.refused] == [(2, "train")]
    assert re.search(r"average/weights: tensors: expected .*, found no 0.0.weight at", report.refused[0].reason)
