"""Measuring a split by hand-made tables, and the lines a run header shows."""

import numpy as np
import pytest

from unskew.data.label_skew import counts, describe, summary
from unskew.data.partition import Dirichlet, split

TABLE = np.array([[4, 0], [0, 2], [1, 1], [0, 0]])


def test_counts_of_rows_and_of_no_rows() -> None:
    labels = np.array([0, 1, 1, 2])
    table = counts([np.array([0, 1, 2]), np.array([], np.int64), np.array([3])], labels, 4)
    assert table.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_summary_by_hand() -> None:
    found = summary(TABLE)
    assert (found["clients"], found["size_min"], found["size_median"], found["size_max"]) == (4, 0, 2.0, 4)
    assert found["classes_mean"] == pytest.approx(4 / 3)
    assert found["missing_mean"] == pytest.approx(2 / 3)
    # overall shares 5/8 and 3/8: distances 3/4, 5/4 and 1/4 for the three clients with rows
    assert found["emd"] == pytest.approx((0.75 + 1.25 + 0.25) / 3)
    assert found["emd_weighted"] == pytest.approx((4 * 0.75 + 2 * 1.25 + 2 * 0.25) / 8)
    assert (found["empty"], found["empty_ids"]) == (1, [3])


def test_equal_mixes_have_no_distance_and_no_rows_do_not_fail() -> None:
    assert summary(np.array([[2, 4], [1, 2]]))["emd"] == pytest.approx(0)
    nothing = summary(np.zeros((2, 3), int))
    assert (nothing["emd"], nothing["emd_weighted"], nothing["missing_mean"]) == (0.0, 0.0, 3.0)


def test_description_names_empty_and_small_clients_and_keeps_the_notes() -> None:
    lines = describe(TABLE, ("a note",), batch=3)
    assert lines[0] == "4 clients, 8 rows: 0 to 4 each, median 2"
    assert "empty clients (1): 3" in lines
    assert "clients smaller than a batch of 3 (2): 1, 2" in lines
    assert lines[-1] == "a note"
    assert not any("smaller" in line for line in describe(TABLE))


def test_long_lists_of_clients_are_cut_after_ten() -> None:
    table = np.zeros((15, 2), int)
    table[0] = 5
    assert "empty clients (14): 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 4 more" in describe(table)


def test_the_header_of_a_severe_dirichlet_split_names_its_empty_clients() -> None:
    labels = np.repeat(np.arange(10), 5000)
    table = counts(split(Dirichlet(clients=20, alpha=0.01), labels, 10, 1).rows, labels, 10)
    empty = np.flatnonzero(table.sum(axis=1) == 0)
    assert empty.size
    assert f"empty clients ({empty.size}): {', '.join(map(str, empty))}" in describe(table)
