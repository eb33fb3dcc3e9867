"""Limits of the draws: when a client is full and when a draw is accepted, at the limit, one below and one above."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from unskew.data import draw_split
from unskew.methods.shared.shared_subset import draw_subset


class GivenShares(np.random.RandomState):
    """A generator with predetermined Dirichlet draws."""

    def __init__(self, shares: list[list[float]]) -> None:
        super().__init__(0)
        self.shares: Iterator[list[float]] = iter(shares)

    def dirichlet(self, alpha: np.ndarray, size: None = None) -> np.ndarray:
        return np.array(next(self.shares))


def rows_of_classes(*sizes: int) -> list[np.ndarray]:
    """Row numbers of classes with these sizes."""
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


# Eight clients. Client 0 gets `held` of the 64 rows of class 0 and client 1 the rest; then clients 0 and 2 would get
# half of class 1 each. A client is full if it has at least (64 + rows of class 1) / 8 rows.
FULL = [
    (64, 15, True),  # 128 / 8 = 16
    (64, 16, False),
    (64, 17, False),
    (66, 16, True),  # 130 / 8 = 16.25 is not rounded down
    (66, 17, False),
]


def shares_of(held: int) -> list[list[float]]:
    """Shares of both classes, exact in binary."""
    return [[held / 64, 1 - held / 64, *[0.0] * 6], [0.5, 0.0, 0.5, *[0.0] * 5]]


@pytest.mark.parametrize(("second", "held", "has_room"), FULL)
def test_a_client_with_exactly_its_share_is_full_in_released_draws(second: int, held: int, has_room: bool) -> None:
    _, split_points, _ = draw_split.draw_released_dirichlet_once(
        GivenShares(shares_of(held)), rows_of_classes(64, second), 8, 0.1, cap=True
    )
    assert np.diff(split_points[0], prepend=0, append=64).tolist() == [held, 64 - held, *[0] * 6]
    expected = [second // 2, 0, second // 2] if has_room else [0, 0, second]
    assert np.diff(split_points[1], prepend=0, append=second).tolist() == [*expected, *[0] * 5]


@pytest.mark.parametrize(("second", "held", "has_room"), FULL)
def test_a_client_with_exactly_its_share_is_full_in_draws_by_counts(
    second: int, held: int, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(shares_of(held))

    def shares(log: np.ndarray, has_room: np.ndarray) -> np.ndarray:
        open_shares = np.array([next(drawn)]) * has_room
        return open_shares / open_shares.sum()

    monkeypatch.setattr(draw_split, "_shares", shares)
    (table,) = draw_split._draw_count_tables(np.random.default_rng(0), np.array([64, second]), 8, 0.1, True, 1)
    assert table[0].tolist() == [held, 64 - held, *[0] * 6]
    expected = [second // 2, 0, second // 2] if has_room else [0, 0, second]
    assert table[1].tolist() == [*expected, *[0] * 5]


def test_without_a_cap_a_full_client_gets_more_rows() -> None:
    _, split_points, smallest = draw_split.draw_released_dirichlet_once(
        GivenShares(shares_of(17)), rows_of_classes(64, 64), 8, 0.1, cap=False
    )
    assert np.diff(split_points[1], prepend=0, append=64).tolist() == [32, 0, 32, *[0] * 5]
    assert smallest == 0


@pytest.mark.parametrize(
    ("min_rows", "draw", "rows_of_smallest"), [(1, 1, 2), (2, 1, 2), (3, 2, 3), (4, 3, 4), (5, 3, 4)]
)
def test_released_draws_stop_when_the_smallest_client_is_large_enough(
    min_rows: int, draw: int, rows_of_smallest: int
) -> None:
    """The smaller of two clients has 2, 3 and 4 of 16 rows in draws 1, 2 and 3; at most three draws are allowed."""
    random_state = GivenShares([[n / 16, 1 - n / 16] for n in (2, 3, 4)])
    rows, tries, smallest = draw_split.draw_released_dirichlet(
        random_state, rows_of_classes(16), 2, 0.1, True, min_rows, 3
    )
    assert (tries, smallest) == (draw, rows_of_smallest)
    assert [len(row) for row in rows] == [rows_of_smallest, 16 - rows_of_smallest]


@pytest.mark.parametrize(("rows", "picked"), [(9, 0), (10, 1), (11, 1), (19, 1), (20, 2), (21, 2)])
def test_the_released_tenth_of_the_rows_is_rounded_down(rows: int, picked: int) -> None:
    pick = draw_subset(np.random.default_rng(0), rows, 0.1, 1, True)
    assert (pick >= 0).sum() == picked
    assert pick.max() < rows


@pytest.mark.parametrize(("rows", "least", "picked"), [(4, 1, 1), (14, 1, 1), (14, 2, 2), (16, 2, 2), (26, 2, 3)])
def test_the_papers_share_has_a_minimum(rows: int, least: int, picked: int) -> None:
    assert (draw_subset(np.random.default_rng(0), rows, 0.1, least, False) >= 0).sum() == picked
