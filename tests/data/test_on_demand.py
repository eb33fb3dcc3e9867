"""Rows on demand: a pure function of seed and client, within what was asked, and nothing done for all clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.base.errors import UserError
from unskew.data.label_skew import describe
from unskew.data.on_demand import OnDemand
from unskew.data.partition import OnDemandRows, split

LABELS = np.arange(300) % 10
FAST = settings(max_examples=60, deadline=None)


def drawn(seed: int = 0, clients: int = 1_000_000, rows: int = 20, per_client: int | None = 2) -> OnDemand:
    made = split(OnDemandRows(clients=clients, rows=rows, per_client=per_client), LABELS, 10, seed).rows
    assert isinstance(made, OnDemand)
    return made


@FAST
@given(st.integers(0, 2**32 - 1), st.integers(0, 999_999), st.integers(1, 30), st.integers(1, 10))
def test_a_client_holds_so_many_rows_of_so_many_classes(seed: int, client: int, rows: int, held: int) -> None:
    mine = drawn(seed, rows=rows, per_client=held)[client]
    assert len(mine) == rows
    assert np.array_equal(mine, np.unique(mine))
    counts = np.bincount(LABELS[mine], minlength=10)
    assert (counts > 0).sum() == min(held, rows)
    assert np.ptp(np.sort(counts)[-held:]) <= 1


def test_rows_depend_on_seed_and_client_and_on_nothing_else() -> None:
    """Neither on who was asked before, nor on how many clients there are."""
    asked, fresh, fewer = drawn(), drawn(), drawn(clients=1000)
    for client in (5, 900, 999_999, 5):
        assert np.array_equal(asked[client], drawn()[client])
    assert np.array_equal(fresh[900], fewer[900])
    assert not np.array_equal(fresh[900], fresh[901])
    assert not np.array_equal(fresh[900], drawn(seed=1)[900])


def test_every_row_and_class_is_drawn_alike() -> None:
    """3000 clients hold 20 of 300 rows: each row about 200 times, standard deviation below 14.2, five allowed."""
    times = np.bincount(np.concatenate(drawn()[:3000]), minlength=300)
    assert np.abs(times - 200).max() < 5 * 14.2


def test_all_classes_unless_a_number_is_given_and_classes_without_rows_are_left_out() -> None:
    labels = np.where(LABELS == 3, 4, LABELS)
    mine = split(OnDemandRows(clients=9, rows=18), labels, 10, 0).rows[8]
    assert np.bincount(labels[mine], minlength=10).tolist() == [2, 2, 2, 0, 2, 2, 2, 2, 2, 2]


def test_it_behaves_like_a_list_of_clients() -> None:
    made = drawn(clients=4)
    assert len(made) == len(list(made)) == 4
    assert np.array_equal(made[-1], made[3])
    assert len(made[1:3]) == 2
    with pytest.raises(IndexError):
        made[4]


@pytest.mark.parametrize(
    ("rows", "held", "words"),
    [(20, 11, "per_client from 1 to 10"), (61, 2, "type rows: 60 or less"), (301, None, "type rows: 300 or less")],
)
def test_what_the_data_cannot_give_is_refused(rows: int, held: int | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        drawn(rows=rows, per_client=held)


def test_a_description_of_some_clients_says_so_and_names_nobody() -> None:
    lines = describe(np.array([[4, 0], [0, 2]]), ("a note",), batch=3, clients=1_000_000)
    assert lines[0] == "1,000,000 clients, 2 of them counted, evenly spaced, 6 rows: 2 to 4 each, median 3"
    assert lines[-1] == "a note"
    assert not any("smaller" in line for line in lines)
