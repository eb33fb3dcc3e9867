"""Stratified sampling: properties that hold for any labels."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.base.errors import UserError
from unskew.data.stratified_split import stratified_mask

LABELS = st.lists(st.integers(0, 6), min_size=2, max_size=200)


@settings(max_examples=150, deadline=None)
@given(LABELS, st.floats(0.01, 0.99), st.integers(0, 2**32))
def test_each_class_gives_its_share_and_keeps_a_row(labels: list[int], fraction: float, seed: int) -> None:
    y = np.array(labels)
    try:
        chosen = stratified_mask(y, fraction, seed)
    except UserError:
        assert round(len(y) * fraction) == 0 or np.bincount(y).max() * fraction < 1 or len(set(labels)) == len(labels)
        return
    assert chosen.dtype == bool
    assert 1 <= chosen.sum() <= round(float((np.unique(y, return_counts=True)[1] * fraction).sum()))
    for label in set(labels):
        size, taken = int((y == label).sum()), int(chosen[y == label].sum())
        assert min(math.floor(size * fraction), size - 1) <= taken <= math.ceil(size * fraction)
        assert taken < size


@settings(max_examples=40, deadline=None)
@given(LABELS, st.integers(0, 1000))
def test_the_mask_depends_only_on_the_arguments(labels: list[int], seed: int) -> None:
    y = np.array(labels + [0] * 10)
    assert np.array_equal(stratified_mask(y, 0.3, seed), stratified_mask(y.copy(), 0.3, seed))


def test_chosen_rows_are_fixed() -> None:
    assert np.flatnonzero(stratified_mask(np.arange(20) % 2, 0.2, 7)).tolist() == [3, 6, 11, 12]


def test_the_seed_changes_the_mask() -> None:
    y = np.zeros(100, dtype=int)
    assert not np.array_equal(stratified_mask(y, 0.5, 0), stratified_mask(y, 0.5, 1))


@pytest.mark.parametrize(
    ("y", "fraction", "seed", "message"),
    [
        (np.zeros(10, int), 1.5, 0, "between 0 and 1"),
        (np.zeros(10, int), 0.5, -1, "seed of 0 or more"),
        (np.zeros((10, 1), int), 0.5, 0, r"shape \[10, 1\]"),
        (np.arange(10), 0.5, 0, "at least one row"),
    ],
)
def test_bad_arguments_are_refused(y: np.ndarray, fraction: float, seed: int, message: str) -> None:
    with pytest.raises(UserError, match=f"mine: .*{message}"):
        stratified_mask(y, fraction, seed, "mine")
