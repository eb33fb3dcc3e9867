"""Queued messages, added in one launch, give the same sum as messages added one by one."""

import pytest
import torch
from torch import Tensor

import unskew as us
from unskew.base.tree import Value, as_state
from unskew.engines.engine import AddUp, StackedMessages
from unskew.server import sums
from unskew.server.sums import Sum

SCALES = (1.0, 1e12, 1e-4, -1e12, 3.0, 1e8, 1e-8)  # so far apart that another order changes the rounding in float64


def add_up(totals: list[Tensor], messages: list[StackedMessages]) -> None:
    """A reference for the kernel: flat over the memory of both tensors, in the order of the messages."""
    for stacked in messages:
        for i, factor in zip(stacked.order, stacked.factors):
            for total, tensor in zip(totals, stacked.tensors):
                total.view(-1).add_(factor * tensor[i].contiguous().view(-1).double())


def add(total: Sum, value: Value, factor: float) -> None:
    """Add one client's value."""
    total.add_rows({key: t[None] for key, t in as_state(value).items()}, [0], [factor])


def messages() -> list[dict[str, Tensor]]:
    """Messages of seven clients, with a transposed matrix, whose memory order is not its index order."""
    return [
        {"w": s * torch.randn(5, 3), "n": torch.tensor(i), "t": s * torch.randn(4, 2).T} for i, s in enumerate(SCALES)
    ]


@pytest.mark.parametrize("max_queued", [0, 100, 2**30])
def test_queueing_does_not_change_the_sum(max_queued: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MAX_QUEUED", max_queued)
    sent = messages()
    queued, one_by_one = (Sum.like("update", sent[0], kernel) for kernel in (add_up, None))
    for rows, message in enumerate(sent, 1):
        add(queued, dict(sorted(message.items())), float(rows))  # another order of names, as after crossing a process
        add(one_by_one, message, float(rows))
    for mean in (True, False):
        result, expected = queued.finish(mean), one_by_one.finish(mean)
        assert all(torch.equal(result[key], expected[key]) for key in sent[0])
    assert all(torch.equal(queued.total[key], one_by_one.total[key]) for key in sent[0])


@pytest.mark.parametrize("rows_at", [[0, 1, 2, 3, 4, 5, 6], [3, 0, 6, 2, 5, 1, 4]])
@pytest.mark.parametrize("kernel", [add_up, None])
def test_rows_of_a_stack_are_added_in_the_given_order(rows_at: list[int], kernel: AddUp | None) -> None:
    sent = messages()
    stacked, one_by_one = Sum.like("update", sent[0], kernel), Sum.like("update", sent[0], None)
    stacked.add_rows(
        {key: torch.stack([m[key] for m in sent]) for key in sorted(sent[0])}, rows_at, [1.0 + i for i in rows_at]
    )
    for i in rows_at:
        add(one_by_one, sent[i], 1.0 + i)
    result, expected = stacked.finish(mean=False), one_by_one.finish(mean=False)
    assert stacked.weight == one_by_one.weight
    assert all(torch.equal(result[key], expected[key]) for key in sent[0])
    assert all(torch.equal(stacked.total[key], one_by_one.total[key]) for key in sent[0])


def test_another_order_would_change_the_sum() -> None:
    sent = messages()
    forward, backward = (Sum.like("update", sent[0], None) for _ in range(2))
    for message, other in zip(sent, reversed(sent)):
        add(forward, message, 1.0)
        add(backward, other, 1.0)
    assert not torch.equal(forward.total["w"], backward.total["w"])


def test_the_queue_is_flushed_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MAX_QUEUED", 100)
    launches: list[int] = []
    total = Sum.like("update", torch.ones(10), lambda totals, messages: launches.append(len(messages)))
    for _ in range(7):
        add(total, torch.ones(10), 1.0)
    total.finish(mean=False)
    assert launches == [3, 3, 1]


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(1), torch.ones(4).double(), torch.ones(4).long()])
def test_a_value_of_another_form_than_the_first_is_refused_by_name(other: Tensor) -> None:
    total = Sum.like("averages", {"w": torch.ones(4)}, None)
    with pytest.raises(us.UserError, match=r"artefact averages: expected w .* torch.float32 \[4\]"):
        add(total, {"w": other}, 1.0)
