"""The interface of every engine. No engine knows any method; engine_registry.py lists the engines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from unskew.base.tree import State, Tree
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import ClientRows
from unskew.client.round import prepare_batch
from unskew.protocol.method import Method
from unskew.protocol.server_view import StandIn
from unskew.protocol.step_view import Batch, at_least_float32
from unskew.wire.requests_and_replies import ClientReply, CohortReply, Received

Run = Callable[[State, Tensor], Tensor]  # from state and rows to logits
# Rows scored in one pass on a CPU: the C library does not keep larger tensors for reuse (runner/process_setup.py).
ROWS_PER_PASS = 50


@dataclass(frozen=True)
class ConfusionScore:
    """Predictions on a set of rows: confusion [true, predicted] and the sum of the cross-entropies.

    If the rows have owners, the confusions of all owners lie one below the other.
    """

    confusion: Tensor
    loss: float

    @property
    def by_owner(self) -> Tensor:
        """[owners, true, predicted]."""
        return self.confusion.view(-1, self.confusion.shape[1], self.confusion.shape[1])

    @property
    def pooled(self) -> ConfusionScore:
        """The score of all rows together."""
        return ConfusionScore(self.by_owner.sum(0), self.loss)


def sum_scores(scores: Iterable[ConfusionScore]) -> ConfusionScore:
    """The total of scores of several sets of rows, or of several models on the same rows."""
    collected = list(scores)
    return ConfusionScore(torch.stack([s.confusion for s in collected]).sum(0), sum(s.loss for s in collected))


class TestRows(NamedTuple):
    """Rows that the server scores, and optionally which of several owners each belongs to."""

    x: Tensor
    y: Tensor
    owner: Tensor | None = None  # [N] from 0 to owners - 1
    owners: int = 1


class StackedMessages(NamedTuple):
    """Stacked messages: tensors [m, ...], the order in which to add their rows, and a factor for each in that order."""

    tensors: list[Tensor]
    order: list[int]
    factors: list[float]


# Adds all messages to float64 totals, in the order given.
AddUp = Callable[[list[Tensor], list[StackedMessages]], None]


class Engine(Protocol):
    """Trains a cohort, runs an exchange on it, evaluates a model."""

    name: str
    context: EngineContext
    device: torch.device
    workers: int
    add_up: AddUp | None  # adds up many messages at once, where there is a kernel for it

    @property
    def padding_share(self) -> float:
        """Share of the computed rows that only pad a client's last batch or a stack."""
        ...

    def train(
        self, round: int, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply | CohortReply]: ...

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], states: dict[int, Tree]
    ) -> Iterator[ClientReply]: ...

    def share(
        self, round: int, part: str, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]: ...

    def verify_finite(self) -> bool:
        """Call at round end. False: a reply was non-finite, so replay the round with checks on."""
        ...

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore: ...

    def close(self) -> None: ...


def no_clients(round: int) -> Sequence[int]:
    return ()


@dataclass(frozen=True, kw_only=True)
class EngineContext(ClientContext):
    """The clients' context, and the splits that the server scores."""

    splits: dict[str, TestRows]
    upcoming: Callable[[int], Sequence[int]] = no_clients  # clients likely to train in a round: a prefetching hint

    def stand_in_rows(self, rows: dict[int, StandIn]) -> ClientRows:
        """Stand-ins as a data source: their rows are already prepared and are not augmented."""
        index, start = {}, 0
        for client, stand_in in rows.items():
            index[client] = torch.arange(start, start + len(stand_in.x))
            start += len(stand_in.x)
        first = next(iter(rows.values()))
        more = {name: torch.cat([s.more[name] for s in rows.values()]) for name in first.more}
        x, y = torch.cat([s.x for s in rows.values()]), torch.cat([s.y for s in rows.values()])
        return ClientRows(x, y, index, self.task.classes, lambda x: x, self.dtype, more=more)

    def score(self, round: int, received: Received, split: str, first: int, last: int) -> ConfusionScore:
        """Score rows first..last-1 of a split."""
        method, _ = self.at_round_on_device(round)
        rows = self.splits[split]
        x, y = self.layout(self.client_rows.prepare(rows.x[first:last])), rows.y[first:last]
        owner = None if rows.owner is None else rows.owner[first:last]
        confusion, loss = self.confusion_and_loss(method, received, x, y, self.model.run, owner, rows.owners)
        return ConfusionScore(confusion.cpu(), float(loss))

    def confusion_and_loss(
        self,
        method: Method,
        received: Received,
        x: Tensor,
        y: Tensor,
        run: Run,
        owner: Tensor | None = None,
        owners: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Confusion and summed cross-entropy of prepared rows, in eval mode, through every part's `batch`.

        run: the model's own, or a faster equivalent. Both results stay on the device, without a synchronisation.
        """
        classes = self.task.classes
        with torch.no_grad():
            ones = torch.ones(len(y), dtype=self.dtype, device=y.device)
            batch = prepare_batch(method, Batch(x, y, ones), received, train=False)
            several_passes = self.device.type == "cpu" and self.model.rows_independent
            passes = torch.split(batch.x, ROWS_PER_PASS if several_passes else len(batch.x))
            logits = torch.cat([at_least_float32(run(received.model, rows)) for rows in passes])
            loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum").double()
            true = y if owner is None else owner * classes + y
            cells = true * classes + logits.argmax(1)
            # Not `bincount`, which synchronises with a GPU to learn the size of its result.
            confusion = cells.new_zeros(owners * classes**2).scatter_add_(0, cells, torch.ones_like(cells))
        return confusion.view(-1, classes), loss


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Pin to one thread: libraries choose the number of threads by load, and it changes rounding."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
