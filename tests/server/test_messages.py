"""What counts as finite."""

import pytest
import torch

from unskew.server.round_messages import is_finite


@pytest.mark.parametrize(
    ("numbers", "fine"),
    [
        ([1.0, -2.0], True),
        ([1.0, float("nan")], False),
        ([float("inf"), float("-inf")], False),
        ([1e308, 1e308], True),  # their sum is not, they are
        ([], True),
    ],
)
def test_every_number_counts_and_no_sum(numbers: list[float], fine: bool) -> None:
    message = {"part": {"a": {"w": torch.ones(3)}, "b": torch.tensor(numbers, dtype=torch.float64)}}
    assert is_finite(message) is fine


def test_integers_are_always_finite() -> None:
    assert is_finite({"part": {"n": torch.tensor([1, 2])}})
