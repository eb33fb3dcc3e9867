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
from unskew.wire.message import ClientReply, CohortReply, Received

Run = Callable[[State, Tensor], Tensor]  # from state and rows to logits
AT_ONCE = (
    50  # rows scored in one pass on a CPU: larger tensors are no longer kept for the next (runner/process_setup.py)
)


@dataclass(frozen=True)
class ConfusionScore:
    """Predictions on a set of rows: confusion [true, predicted] and the sum of the cross-entropies."""

    confusion: Tensor
    loss: float


def sum_of(scores: Iterable[ConfusionScore]) -> ConfusionScore:
    """Scores of several sets of rows, or of several models on the same rows, together."""
    all_of = list(scores)
    return ConfusionScore(torch.stack([s.confusion for s in all_of]).sum(0), sum(s.loss for s in all_of))


class StackedMessages(NamedTuple):
    """Messages with a leading axis: their tensors [m, ...], the order of the rows, and each one's factor in it."""

    tensors: list[Tensor]
    at: list[int]
    factors: list[float]


# Adds all messages to totals in float64, in that order.
AddUp = Callable[[list[Tensor], list[StackedMessages]], None]


class Engine(Protocol):
    """Trains a cohort, runs an exchange on it, evaluates a model."""

    name: str
    context: EngineContext
    device: torch.device
    workers: int
    add_up: AddUp | None  # many messages at once, where a kernel does it

    @property
    def padding_share(self) -> float:
        """Share of the computed rows that no client trains on: they fill a last batch, or a stack."""
        ...

    def train(
        self, round: int, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply | CohortReply]: ...

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], mine: dict[int, Tree]
    ) -> Iterator[ClientReply]: ...

    def share(
        self, round: int, part: str, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]: ...

    def verify_finite(self) -> bool:
        """At the end of a round: whether all that was handed out as finite is. After a False, only what was seen is."""
        ...

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore: ...

    def close(self) -> None: ...


def no_clients(round: int) -> Sequence[int]:
    return ()


@dataclass(frozen=True, kw_only=True)
class EngineContext(ClientContext):
    """What an engine is made of: all clients' context, and what the server scores."""

    splits: dict[str, tuple[Tensor, Tensor]]
    upcoming: Callable[[int], Sequence[int]] = no_clients  # who is likely to train in a round: a hint for prefetching

    def stand_in_rows(self, rows: dict[int, StandIn]) -> ClientRows:
        """Stand-ins as rows of their own: rows are ready for the model and are not augmented."""
        index, at = {}, 0
        for client, stand_in in rows.items():
            index[client] = torch.arange(at, at + len(stand_in.x))
            at += len(stand_in.x)
        first = next(iter(rows.values()))
        more = {name: torch.cat([s.more[name] for s in rows.values()]) for name in first.more}
        x, y = torch.cat([s.x for s in rows.values()]), torch.cat([s.y for s in rows.values()])
        return ClientRows(x, y, index, self.task.classes, lambda x: x, self.dtype, more=more)

    def score(self, round: int, received: Received, split: str, first: int, last: int) -> ConfusionScore:
        """Predictions on rows first..last of a split."""
        method, _ = self.at_round_on_device(round)
        x, y = (column[first:last] for column in self.splits[split])
        confusion, loss = self.scored(method, received, self.layout(self.client_rows.prepare(x)), y, self.model.run)
        return ConfusionScore(confusion.cpu(), float(loss))

    def scored(self, method: Method, received: Received, x: Tensor, y: Tensor, run: Run) -> tuple[Tensor, Tensor]:
        """Confusion and summed cross-entropy of prepared rows, in eval mode, through every part's `batch`.

        run: the model's, or a faster one. Both stay on the device, which nothing here waits for.
        """
        classes = self.task.classes
        with torch.no_grad():
            ones = torch.ones(len(y), dtype=self.dtype, device=y.device)
            batch = prepare_batch(method, Batch(x, y, ones), received, train=False)
            small = self.device.type == "cpu" and self.model.rows_alone
            parts = torch.split(batch.x, AT_ONCE if small else len(batch.x))
            logits = torch.cat([at_least_float32(run(received.model, part)) for part in parts])
            loss = torch.nn.functional.cross_entropy(logits, y, reduction="sum").double()
            pairs = y * classes + logits.argmax(1)
            # Not `bincount`, which waits for a GPU to find out how many there are.
            confusion = pairs.new_zeros(classes**2).scatter_add_(0, pairs, torch.ones_like(pairs))
        return confusion.view(classes, classes), loss


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Libraries take more or fewer threads by the load of the machine, and other threads round otherwise: so one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
