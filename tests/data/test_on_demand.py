"""Rows on demand: a pure function of seed and client, with the requested sizes, computed only on access."""

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
    rows_by_client = split(OnDemandRows(clients=clients, rows=rows, per_client=per_client), LABELS, 10, seed).rows
    assert isinstance(rows_by_client, OnDemand)
    return rows_by_client


@FAST
@given(st.integers(0, 2**32 - 1), st.integers(0, 999_999), st.integers(1, 30), st.integers(1, 10))
def test_a_client_has_the_requested_numbers_of_rows_and_classes(seed: int, client: int, rows: int, held: int) -> None:
    row_numbers = drawn(seed, rows=rows, per_client=held)[client]
    assert len(row_numbers) == rows
    assert np.array_equal(row_numbers, np.unique(row_numbers))
    counts = np.bincount(LABELS[row_numbers], minlength=10)
    assert (counts > 0).sum() == min(held, rows)
    assert np.ptp(np.sort(counts)[-held:]) <= 1


def test_rows_depend_only_on_seed_and_client() -> None:
    """They depend neither on the order of access nor on the number of clients."""
    reused, fresh, fewer = drawn(), drawn(), drawn(clients=1000)
    for client in (5, 900, 999_999, 5):
        assert np.array_equal(reused[client], drawn()[client])
    assert np.array_equal(fresh[900], fewer[900])
    assert not np.array_equal(fresh[900], fresh[901])
    assert not np.array_equal(fresh[900], drawn(seed=1)[900])


def test_all_rows_are_equally_likely() -> None:
    """3000 clients hold 20 of 300 rows: each row about 200 times, standard deviation below 14.2, five are allowed."""
    times = np.bincount(np.concatenate(drawn()[:3000]), minlength=300)
    assert np.abs(times - 200).max() < 5 * 14.2


def test_by_default_a_client_has_all_classes_with_rows() -> None:
    labels = np.where(LABELS == 3, 4, LABELS)
    row_numbers = split(OnDemandRows(clients=9, rows=18), labels, 10, 0).rows[8]
    assert np.bincount(labels[row_numbers], minlength=10).tolist() == [2, 2, 2, 0, 2, 2, 2, 2, 2, 2]


def test_rows_on_demand_behave_like_a_list_of_clients() -> None:
    clients = drawn(clients=4)
    assert len(clients) == len(list(clients)) == 4
    assert np.array_equal(clients[-1], clients[3])
    assert len(clients[1:3]) == 2
    with pytest.raises(IndexError):
        clients[4]


@pytest.mark.parametrize(
    ("rows", "held", "message"),
    [(20, 11, "per_client from 1 to 10"), (61, 2, "type rows: 60 or less"), (301, None, "type rows: 300 or less")],
)
def test_impossible_requests_are_refused(rows: int, held: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        drawn(rows=rows, per_client=held)


def test_the_description_of_a_sample_lists_no_client_numbers() -> None:
    lines = describe(np.array([[4, 0], [0, 2]]), ("a note",), batch=3, clients=1_000_000)
    assert lines[0] == "1,000,000 clients, 2 of them counted, evenly spaced, 6 rows: 2 to 4 each, median 3"
    assert lines[-1] == "a note"
    assert not any("smaller" in line for line in lines)
