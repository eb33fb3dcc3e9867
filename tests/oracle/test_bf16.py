"""bf16: the update rounded to eight bits of mantissa, ties to even, in half the bytes."""

import pytest
import torch
from sealing import outgoing, tampered, travelled
from toolbox import federation, last_model, messages, played

from unskew.base.errors import UserError
from unskew.base.tree import size_in_bytes
from unskew.methods.bf16 import Bfloat16

START = {"w": torch.tensor([1.0, 1.0, 1.0, 1.0])}
# 1 + 1/256 lies between 1 and 1 + 1/128: the even one is 1. 1 + 3/256 goes up to 1 + 2/128. 2^-20 is kept whole.
UPDATE = torch.tensor([1 + 1 / 256, 1 + 3 / 256, -(2.0**-20), 0.0])


def test_the_update_is_rounded_to_the_nearest_and_ties_to_even() -> None:
    wire, opened, _ = travelled(Bfloat16(), outgoing({"w": START["w"] + UPDATE}, START))
    assert (opened["w"] - 1).tolist() == [1.0, 1 + 2 / 128, -(2.0**-20), 0.0]
    assert wire["w bf16"].tolist() == [0x3F80, 0x3F82, 0xB580 - 0x10000, 0]  # the bits of those numbers


def test_a_small_update_of_a_large_weight_arrives_whole() -> None:
    """Weights themselves in bf16 would stay 1: the update is a tenth of their step."""
    _, opened, _ = travelled(Bfloat16(), outgoing({"w": START["w"] + 2.0**-11}, START))
    assert opened["w"].tolist() == [1 + 2.0**-11] * 4


def test_two_bytes_an_entry_and_statistics_in_full() -> None:
    fed = federation("fedavg-bf16", norm=True, precision="float32")
    *_, (snap, _) = played(fed, 1)
    trained = sum(fed.model.initial[n].numel() for n in fed.model.shared)
    rest = size_in_bytes({n: t for n, t in fed.model.initial.items() if n not in fed.model.shared})
    entries = [e for e in snap.ledger.entries if (e.direction, e.part) == ("up", "average")]
    assert {(e.artefact, e.kind, e.bytes) for e in entries} == {("weights", "weights", 2 * trained + rest)}
    assert size_in_bytes(messages(snap)["0"]) == 2 * trained + rest


def test_the_model_is_fedavg_within_the_rounding() -> None:
    ours, plain = (last_model(federation(name), 1) for name in ("fedavg-bf16", "fedavg"))
    start = federation("fedavg").start().model
    assert all(((ours[n] - plain[n]).abs() <= (plain[n] - start[n]).abs().max() / 256).all() for n in plain)
    assert any(not torch.equal(ours[n], plain[n]) for n in plain)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"w bf16": torch.zeros(3, dtype=torch.int16)}, r"w bf16: expected torch.int16 of shape \[4\], found .*\[3\]"),
        ({"w bf16": torch.zeros(4)}, "expected torch.int16 .*, found torch.float32"),
        ({"w bf16": None}, "found nothing"),
        ({"x bf16": torch.zeros(4, dtype=torch.int16)}, "found 'x bf16' too"),
    ],
)
def test_what_was_not_agreed_on_is_refused(changes: dict, found: str) -> None:
    part = Bfloat16()
    with pytest.raises(UserError, match=found):
        part.open(tampered(part, outgoing({"w": START["w"] + UPDATE}, START), **changes))
