"""Widths of a shrinking stack: few sizes, wide enough, and as little waste as possible."""

import doctest
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.engine import ragged
from unskew.engine.ragged import SIZES, widths


def active(steps: list[int]) -> list[int]:
    """Clients still training at every step."""
    return [sum(s > t for s in steps) for t in range(max(steps, default=0))]


def least_rows(steps: list[int], sizes: int) -> int:
    """The fewest rows any choice of at most `sizes` widths computes, by trying them all."""
    need = active(steps)
    levels = sorted(set(need))
    choices = [c for size in range(1, sizes + 1) for c in combinations(levels, size) if c[-1] == levels[-1]]
    return min(sum(min(c for c in chosen if c >= n) for n in need) for chosen in choices)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.integers(0, 12), min_size=1, max_size=9), sizes=st.integers(1, 4))
def test_few_wide_enough_and_cheapest(steps: list[int], sizes: int) -> None:
    steps = sorted(steps, reverse=True)
    found = widths(steps, sizes)
    assert len(found) == max(steps)
    assert len(set(found)) <= sizes
    assert all(width >= n for width, n in zip(found, active(steps)))
    assert found == sorted(found, reverse=True)
    if found:
        assert sum(found) == least_rows(steps, sizes)


@settings(max_examples=50, deadline=None)
@given(steps=st.lists(st.integers(1, 200), min_size=1, max_size=60))
def test_at_most_eight_sizes_by_default(steps: list[int]) -> None:
    found = widths(sorted(steps, reverse=True))
    assert SIZES == 8
    assert len(set(found)) <= 8
    assert all(width >= n for width, n in zip(found, active(steps), strict=True))
    assert found == sorted(found, reverse=True)
    assert found[0] == len(steps)


@pytest.mark.parametrize(
    ("steps", "sizes", "want"),
    [
        ([3, 3], 8, [2, 2, 2]),
        ([4, 2, 1], 8, [3, 2, 1, 1]),  # enough sizes: no waste
        ([4, 2, 1], 1, [3, 3, 3, 3]),
        ([5, 2, 1], 2, [3, 3, 1, 1, 1]),  # 3+3+1+1+1 = 9 rows; widths 3 and 2 would be 3+2*4 = 11
        ([0, 0], 8, []),
        ([], 8, []),
    ],
)
def test_widths_by_hand(steps: list[int], sizes: int, want: list[int]) -> None:
    assert widths(steps, sizes) == want


def test_example_in_the_docstring() -> None:
    done = doctest.testmod(ragged)
    assert done.attempted == 1
    assert done.failed == 0
