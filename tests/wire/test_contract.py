"""A contract says of every tensor what it may look like, and a message is refused by the name of what differs."""

import pytest
import torch

from unskew.base.tree import Rows
from unskew.protocol.part import Artefact
from unskew.wire.contract import NAME, Contract, RefusedError, TensorSpec, specs_of

DECLARED = {"p": {"w": Artefact("weights"), "rows": Artefact("features"), "labels": Artefact("labels")}}
SENT = {"w": {"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.int64)}}
ROWS = {
    "rows": Rows(torch.zeros(4, 5), torch.ones(4, dtype=torch.bool)),
    "labels": Rows(torch.zeros(4, dtype=torch.int64), torch.ones(4, dtype=torch.bool)),
}


def contract() -> Contract:
    return Contract({"p": {name: specs_of(value) for name, value in (SENT | ROWS).items()}}, DECLARED)


def message(rows: int = 3, labels: int = 3, **more: object) -> dict:
    return {"p": SENT | {"rows": torch.zeros(rows, 5), "labels": torch.zeros(labels, dtype=torch.int64)} | more}


def test_what_was_agreed_on_passes() -> None:
    for rows in range(5):
        contract().check(message(rows, rows))


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (message(5, 5), r"p/rows: expected at most 4 rows of float32 \[5\], found float32 \[5, 5\]"),
        (message(3, 2), "p: expected equally many rows of rows, labels, found 3 of rows, 2 of labels"),
        (message(w=torch.zeros(2)), r"p/w: expected tensors by name, found float32 \[2\]"),
        (message(w={"a": torch.zeros(2, 3)}), "p/w: tensors: expected a, b, found no b"),
        (message(w=SENT["w"] | {"a": torch.zeros(3, 2)}), r"p/w: a: expected float32 \[2, 3\], found float32 \[3, 2\]"),
        (message(w=SENT["w"] | {"a": "text"}), r"p/w: a: expected float32 \[2, 3\], found str"),
        (message(x=torch.zeros(1)), "p: artefacts: expected w, rows, labels, found 'x' too"),
        ({}, "parts: expected p, found no p"),
        ({"p": torch.zeros(1)}, "p: artefacts: expected w, rows, labels, found float32"),
        (torch.zeros(1), "parts: expected p, found float32"),
    ],
)
def test_what_differs_is_named(sent: dict, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        contract().check(sent)


def test_a_cohort_has_an_axis_more() -> None:
    specs = Contract({"p": {"w": specs_of(SENT["w"])}})
    stacked = {"p": {"w": {"a": torch.zeros(7, 2, 3), "b": torch.zeros(7, dtype=torch.int64)}}}
    specs.check(stacked, axes=1)
    with pytest.raises(RefusedError, match="p/w: a: expected"):
        specs.check(stacked)


def test_bytes_are_those_of_all_tensors_with_room_for_names() -> None:
    bare = Contract({}).most_bytes
    assert contract().most_bytes - bare == 2 * 3 * 4 + 8 + 4 * 5 * 4 + 4 * 8 + 4 * NAME


def test_bounds_of_more_rows_grow_in_proportion() -> None:
    found = contract().for_rows(10, 25).specs["p"]
    assert found["rows"] == TensorSpec(torch.float32, (5,), 10)
    assert found["w"]["a"] == TensorSpec(torch.float32, (2, 3))  # type: ignore[index]
