"""Messages that wait to be added up together give the sum of those that are added one by one."""

import pytest
import torch
from torch import Tensor

import unskew as us
from unskew.base.tree import Value, as_state
from unskew.engines.engine import AddUp, StackedMessages
from unskew.server import sums
from unskew.server.sums import Sum

SCALES = (1.0, 1e12, 1e-4, -1e12, 3.0, 1e8, 1e-8)  # so far apart that float64 tells another order by its rounding


def together(totals: list[Tensor], messages: list[StackedMessages]) -> None:
    """What a kernel does, in plain words: through the memory of both, in the order of the messages."""
    for some in messages:
        for i, factor in zip(some.at, some.factors):
            for total, tensor in zip(totals, some.tensors):
                total.view(-1).add_(factor * tensor[i].contiguous().view(-1).double())


def add(total: Sum, value: Value, factor: float) -> None:
    """One client's."""
    total.add_rows({key: t[None] for key, t in as_state(value).items()}, [0], [factor])


def messages() -> list[dict[str, Tensor]]:
    """A transposed matrix among them, which lies in memory in another order than it is read."""
    return [
        {"w": s * torch.randn(5, 3), "n": torch.tensor(i), "t": s * torch.randn(4, 2).T} for i, s in enumerate(SCALES)
    ]


@pytest.mark.parametrize("waiting", [0, 100, 2**30])
def test_waiting_changes_nothing(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WAITING", waiting)
    sent = messages()
    at_once, replies_one_by_one = (Sum.like("update", sent[0], how) for how in (together, None))
    for rows, message in enumerate(sent, 1):
        add(at_once, dict(sorted(message.items())), float(rows))  # another order of names, as after crossing a process
        add(replies_one_by_one, message, float(rows))
    for mean in (True, False):
        ours, theirs = at_once.finish(mean), replies_one_by_one.finish(mean)
        assert all(torch.equal(ours[key], theirs[key]) for key in sent[0])
    assert all(torch.equal(at_once.total[key], replies_one_by_one.total[key]) for key in sent[0])


@pytest.mark.parametrize("at", [[0, 1, 2, 3, 4, 5, 6], [3, 0, 6, 2, 5, 1, 4]])
@pytest.mark.parametrize("how", [together, None])
def test_rows_of_a_stack_are_added_in_the_order_given(at: list[int], how: AddUp | None) -> None:
    sent = messages()
    stacked, replies_one_by_one = Sum.like("update", sent[0], how), Sum.like("update", sent[0], None)
    stacked.add_rows({key: torch.stack([m[key] for m in sent]) for key in sorted(sent[0])}, at, [1.0 + i for i in at])
    for i in at:
        add(replies_one_by_one, sent[i], 1.0 + i)
    ours, theirs = stacked.finish(mean=False), replies_one_by_one.finish(mean=False)
    assert stacked.weight == replies_one_by_one.weight
    assert all(torch.equal(ours[key], theirs[key]) for key in sent[0])
    assert all(torch.equal(stacked.total[key], replies_one_by_one.total[key]) for key in sent[0])


def test_another_order_would_be_seen() -> None:
    sent = messages()
    there, back = (Sum.like("update", sent[0], None) for _ in range(2))
    for message, other in zip(sent, reversed(sent)):
        add(there, message, 1.0)
        add(back, other, 1.0)
    assert not torch.equal(there.total["w"], back.total["w"])


def test_no_more_waits_than_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "WAITING", 100)
    seen: list[int] = []
    total = Sum.like("update", torch.ones(10), lambda totals, messages: seen.append(len(messages)))
    for _ in range(7):
        add(total, torch.ones(10), 1.0)
    total.finish(mean=False)
    assert seen == [3, 3, 1]


@pytest.mark.parametrize("other", [torch.ones(3), torch.ones(1), torch.ones(4).double(), torch.ones(4).long()])
def test_what_is_not_like_the_first_is_refused_by_name(other: Tensor) -> None:
    total = Sum.like("averages", {"w": torch.ones(4)}, None)
    with pytest.raises(us.UserError, match=r"artefact averages: expected w .* torch.float32 \[4\]"):
        add(total, {"w": other}, 1.0)
