"""Which messages count as finite."""

import pytest
import torch

from unskew.server.round_messages import is_finite


@pytest.mark.parametrize(
    ("numbers", "finite"),
    [
        ([1.0, -2.0], True),
        ([1.0, float("nan")], False),
        ([float("inf"), float("-inf")], False),
        ([1e308, 1e308], True),  # finite, although their sum overflows
        ([], True),
    ],
)
def test_finite_only_if_every_number_is(numbers: list[float], finite: bool) -> None:
    message = {"part": {"a": {"w": torch.ones(3)}, "b": torch.tensor(numbers, dtype=torch.float64)}}
    assert is_finite(message) is finite


def test_integers_are_always_finite() -> None:
    assert is_finite({"part": {"n": torch.tensor([1, 2])}})
