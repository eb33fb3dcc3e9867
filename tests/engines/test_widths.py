"""Widths of a shrinking stack: sufficient, few, and the same in every round."""

from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.engines.stacked.widths import MAX_WIDTHS, widths


def active(steps: list[int]) -> list[int]:
    """Clients still training at every step."""
    return [sum(s > t for s in steps) for t in range(max(steps, default=0))]


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.integers(0, 40), min_size=1, max_size=90), max_widths=st.integers(1, 40))
def test_widths_are_sufficient_few_and_never_grow(steps: list[int], max_widths: int) -> None:
    steps = sorted(steps, reverse=True)
    plan = widths(steps, max_widths)
    need = active(steps)
    assert len(plan) == len(need)
    assert all(n <= width <= len(steps) for width, n in zip(plan, need))
    assert plan == sorted(plan, reverse=True)
    assert len(set(plan)) <= max_widths


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.integers(1, 200), min_size=1, max_size=MAX_WIDTHS))
def test_small_cohorts_are_not_padded(steps: list[int]) -> None:
    steps = sorted(steps, reverse=True)
    assert widths(steps) == active(steps)


def test_possible_widths_depend_only_on_the_number_of_clients() -> None:
    """For any steps the widths are multiples of the same number, so captured graphs are reused in every round."""
    for first in range(1, 60):
        assert {width % 4 for width in widths(sorted(range(first, first + 100), reverse=True))} == {0}


def test_without_steps_there_are_no_widths() -> None:
    assert widths([]) == widths([0, 0]) == []
