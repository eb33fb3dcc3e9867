"""bf16: the update rounded to eight bits of mantissa, ties to even, in half the bytes."""

import pytest
import torch
from sealing import outgoing, round_trip, tampered
from toolbox import federation, last_model, messages, run_rounds

from unskew.base.errors import UserError
from unskew.base.tree import size_in_bytes
from unskew.methods.bf16 import Bfloat16

START = {"w": torch.tensor([1.0, 1.0, 1.0, 1.0])}
# 1 + 1/256 is halfway between 1 and 1 + 1/128 and rounds to the even 1; 1 + 3/256 rounds up to 1 + 2/128; 2^-20 is
# exact.
UPDATE = torch.tensor([1 + 1 / 256, 1 + 3 / 256, -(2.0**-20), 0.0])


def test_the_update_is_rounded_to_the_nearest_and_ties_to_even() -> None:
    wire, opened, _ = round_trip(Bfloat16(), outgoing({"w": START["w"] + UPDATE}, START))
    assert (opened["w"] - 1).tolist() == [1.0, 1 + 2 / 128, -(2.0**-20), 0.0]
    assert wire["w bf16"].tolist() == [0x3F80, 0x3F82, 0xB580 - 0x10000, 0]  # the bits of those numbers


def test_a_small_update_of_a_large_weight_is_not_lost() -> None:
    """Weights in bf16 would stay 1, because the update is a fraction of the spacing there."""
    _, opened, _ = round_trip(Bfloat16(), outgoing({"w": START["w"] + 2.0**-11}, START))
    assert opened["w"].tolist() == [1 + 2.0**-11] * 4


def test_entries_take_two_bytes_and_statistics_are_sent_in_full() -> None:
    fed = federation("fedavg-bf16", norm=True, precision="float32")
    *_, (snap, _) = run_rounds(fed, 1)
    trained = sum(fed.model.initial[n].numel() for n in fed.model.shared)
    rest = size_in_bytes({n: t for n, t in fed.model.initial.items() if n not in fed.model.shared})
    entries = [e for e in snap.ledger.entries if (e.direction, e.part) == ("up", "average")]
    assert {(e.artefact, e.kind, e.bytes) for e in entries} == {("weights", "weights", 2 * trained + rest)}
    assert size_in_bytes(messages(snap)["0"]) == 2 * trained + rest


def test_the_model_is_fedavg_within_the_rounding() -> None:
    coded, plain = (last_model(federation(name), 1) for name in ("fedavg-bf16", "fedavg"))
    start = federation("fedavg").start().model
    assert all(((coded[n] - plain[n]).abs() <= (plain[n] - start[n]).abs().max() / 256).all() for n in plain)
    assert any(not torch.equal(coded[n], plain[n]) for n in plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w bf16": torch.zeros(3, dtype=torch.int16)}, r"w bf16: expected torch.int16 of shape \[4\], found .*\[3\]"),
        ({"w bf16": torch.zeros(4)}, "expected torch.int16 .*, found torch.float32"),
        ({"w bf16": None}, "found nothing"),
        ({"x bf16": torch.zeros(4, dtype=torch.int16)}, "found 'x bf16' too"),
    ],
)
def test_mismatching_tensors_are_refused(changes: dict, message: str) -> None:
    part = Bfloat16()
    with pytest.raises(UserError, match=message):
        part.open(tampered(part, outgoing({"w": START["w"] + UPDATE}, START), **changes))
