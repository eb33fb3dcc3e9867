"""Measures of label skew on small tables, and the lines in a run's header."""

import numpy as np
import pytest

from unskew.data.label_skew import counts, describe, summary
from unskew.data.partition import Dirichlet, split

TABLE = np.array([[4, 0], [0, 2], [1, 1], [0, 0]])


def test_counts_include_clients_without_rows() -> None:
    labels = np.array([0, 1, 1, 2])
    table = counts([np.array([0, 1, 2]), np.array([], np.int64), np.array([3])], labels, 4)
    assert table.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]


def test_summary_of_a_small_table_matches_hand_computation() -> None:
    stats = summary(TABLE)
    assert (stats["clients"], stats["size_min"], stats["size_median"], stats["size_max"]) == (4, 0, 2.0, 4)
    assert stats["classes_mean"] == pytest.approx(4 / 3)
    assert stats["missing_mean"] == pytest.approx(2 / 3)
    # Overall shares are 5/8 and 3/8: distances 3/4, 5/4 and 1/4 for the three clients with rows
    assert stats["emd"] == pytest.approx((0.75 + 1.25 + 0.25) / 3)
    assert stats["emd_weighted"] == pytest.approx((4 * 0.75 + 2 * 1.25 + 2 * 0.25) / 8)
    assert (stats["empty"], stats["empty_ids"]) == (1, [3])


def test_equal_shares_have_distance_zero_and_empty_tables_do_not_fail() -> None:
    assert summary(np.array([[2, 4], [1, 2]]))["emd"] == pytest.approx(0)
    empty = summary(np.zeros((2, 3), int))
    assert (empty["emd"], empty["emd_weighted"], empty["missing_mean"]) == (0.0, 0.0, 3.0)


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
