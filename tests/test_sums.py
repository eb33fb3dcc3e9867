"""Messages that wait to be added up together give the sum of those that are added one by one."""

import pytest
import torch

from unskew.core import sums
from unskew.core.sums import Sum


def together(totals: list[torch.Tensor], messages: list[list[torch.Tensor]], factors: list[float]) -> None:
    """What a kernel does, in plain words."""
    for message, factor in zip(messages, factors):
        for total, tensor in zip(totals, message):
            total += factor * tensor.double()


@pytest.mark.parametrize("waiting", [0, 100, 2**30])
def test_waiting_changes_nothing(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WAITING", waiting)
    messages = [{"w": torch.randn(5, 3), "n": torch.tensor(i), "b": torch.randn(4)} for i in range(7)]
    at_once, one_by_one = (Sum.like(messages[0], how) for how in (together, None))
    for rows, message in enumerate(messages, 1):
        mixed = dict(sorted(message.items()))  # another order, as after crossing a process
        at_once.add(mixed, float(rows))
        one_by_one.add(message, float(rows))
    for mean in (True, False):
        ours, theirs = at_once.finish(mean), one_by_one.finish(mean)
        assert all(torch.equal(ours[key], theirs[key]) for key in messages[0])


def test_no_more_waits_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WAITING", 100)
    seen: list[int] = []
    total = Sum.like(torch.ones(10), lambda totals, messages, factors: seen.append(len(messages)))
    for _ in range(7):
        total.add(torch.ones(10), 1.0)
    total.finish(mean=False)
    assert seen == [3, 3, 1]
