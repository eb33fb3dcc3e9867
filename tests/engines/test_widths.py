"""Widths of a shrinking stack: wide enough, few sizes, and the same sizes in every round."""

from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.engines.stacked.widths import SIZES, widths


def active(steps: list[int]) -> list[int]:
    """Clients still training at every step."""
    return [sum(s > t for s in steps) for t in range(max(steps, default=0))]


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.integers(0, 40), min_size=1, max_size=90), sizes=st.integers(1, 40))
def test_wide_enough_few_and_falling(steps: list[int], sizes: int) -> None:
    steps = sorted(steps, reverse=True)
    found = widths(steps, sizes)
    need = active(steps)
    assert len(found) == len(need)
    assert all(n <= width <= len(steps) for width, n in zip(found, need))
    assert found == sorted(found, reverse=True)
    assert len(set(found)) <= sizes


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.integers(1, 200), min_size=1, max_size=SIZES))
def test_small_cohorts_waste_nothing(steps: list[int]) -> None:
    steps = sorted(steps, reverse=True)
    assert widths(steps) == active(steps)


def test_the_sizes_depend_on_the_number_of_clients_alone() -> None:
    """Whatever the steps of a round are, its widths are multiples of one number: recordings are found again."""
    for first in range(1, 60):
        assert {width % 4 for width in widths(sorted(range(first, first + 100), reverse=True))} == {0}


def test_nobody_trains() -> None:
    assert widths([]) == widths([0, 0]) == []
