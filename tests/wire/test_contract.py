"""A contract fixes every tensor of a message; a message that differs is refused, and the error names the difference."""

import pytest
import torch

from unskew.base.tree import Rows
from unskew.protocol.part import Artefact
from unskew.wire.contract import NAME_BYTES, Contract, RefusedError, TensorSpec, specs_of

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


def test_a_matching_message_passes() -> None:
    for rows in range(5):
        contract().check(message(rows, rows))


@pytest.mark.parametrize(
    ("sent", "error"),
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
def test_the_refusal_names_the_difference(sent: dict, error: str) -> None:
    with pytest.raises(RefusedError, match=error):
        contract().check(sent)


def test_a_cohort_has_one_more_axis() -> None:
    specs = Contract({"p": {"w": specs_of(SENT["w"])}})
    stacked = {"p": {"w": {"a": torch.zeros(7, 2, 3), "b": torch.zeros(7, dtype=torch.int64)}}}
    specs.check(stacked, axes=1)
    with pytest.raises(RefusedError, match="p/w: a: expected"):
        specs.check(stacked)


def test_max_bytes_count_all_tensors_and_room_for_names() -> None:
    empty = Contract({}).max_bytes
    assert contract().max_bytes - empty == 2 * 3 * 4 + 8 + 4 * 5 * 4 + 4 * 8 + 4 * NAME_BYTES


def test_bounds_on_rows_grow_with_the_clients_rows() -> None:
    scaled = contract().for_rows(10, 25).specs["p"]
    assert scaled["rows"] == TensorSpec(torch.float32, (5,), 10)
    assert scaled["w"]["a"] == TensorSpec(torch.float32, (2, 3))  # type: ignore[index]
