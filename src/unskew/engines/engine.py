"""What every engine offers, and where the rows of clients come from. No engine knows any method."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from unskew.base.errors import UserError
from unskew.base.per_client import PerClient
from unskew.base.tree import State, Tree, tree_map
from unskew.client.plan import Plan
from unskew.client.round import PRIVATE, ClientFacts, Newcomer, Received, prepare_batch
from unskew.data.augment import Augment
from unskew.engines.channels_last import to_channels_last
from unskew.models.model import Model
from unskew.protocol.method import Method, Task
from unskew.protocol.part import Part, Sizes
from unskew.protocol.view import Batch, at_least_float32
from unskew.protocol.work import Work
from unskew.server.snapshot import StandIn
from unskew.server.sums import AddUp
from unskew.wire.message import ClientReply, CohortReply

Run = Callable[[State, Tensor], Tensor]  # from state and rows to logits
AT_ONCE = 50  # rows scored in one pass on a CPU: larger tensors are no longer kept for the next (process.py)


@dataclass(frozen=True)
class ClientRows:
    """Rows of all clients in one place: x [N, ...] raw, y [N] or [N, classes], and where each client's rows are."""

    x: Tensor
    y: Tensor
    index: PerClient[Tensor]  # on the host, where the plan is made
    classes: int
    prepare: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    augment: Augment = field(default_factory=Augment)
    more: dict[str, Tensor] = field(default_factory=dict)

    def facts(self, client: int) -> ClientFacts:
        """Number of rows and label counts of a client."""
        return tree_map(lambda t: t[0], self.facts_of([client]))

    def facts_of(self, clients: list[int]) -> ClientFacts:
        """The same for several, with a leading axis; counted on the host, and moved together."""
        each = [self.index[k].numpy() for k in clients]
        rows = torch.tensor([float(len(own)) for own in each], dtype=self.dtype)
        counts = torch.from_numpy(self._counted(each)).to(self.dtype)
        return ClientFacts(sent(rows, self.y.device), sent(counts, self.y.device))

    def _counted(self, each: list[np.ndarray]) -> np.ndarray:
        """[m, classes] labels of each client's rows, all in one pass."""
        y = self._labels
        if y.ndim > 1:
            return np.stack([y[own].sum(0, dtype=np.float64) for own in each])
        owner, mine = np.repeat(np.arange(len(each)), [len(own) for own in each]), y[np.concatenate(each)]
        if len(mine) and not (mine.min() >= 0 and mine.max() < self.classes):
            raise UserError(
                f"labels: expected whole numbers from 0 to {self.classes - 1}, found {mine.min()} to {mine.max()}"
            )
        found = np.bincount(owner * self.classes + mine, minlength=len(each) * self.classes)
        return found.reshape(len(each), self.classes)

    @cached_property
    def _labels(self) -> np.ndarray:
        return self.y.cpu().numpy()


@dataclass(frozen=True)
class Score:
    """Predictions on a set of rows: confusion [true, predicted] and the sum of the cross-entropies."""

    confusion: Tensor
    loss: float


def sum_of(scores: Iterable[Score]) -> Score:
    """Scores of several sets of rows, or of several models on the same rows, together."""
    all_of = list(scores)
    return Score(torch.stack([s.confusion for s in all_of]).sum(0), sum(s.loss for s in all_of))


class Engine(Protocol):
    """Trains a cohort, runs an exchange on it, evaluates a model."""

    name: str
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

    def evaluate(self, round: int, received: Received, split: str) -> Score: ...

    def close(self) -> None: ...


def no_clients(round: int) -> Sequence[int]:
    return ()


@dataclass(frozen=True)
class EngineContext:
    """What an engine is made of: all of it fixed for the run."""

    method: Method
    model: Model
    task: Task
    plan: Plan
    client_rows: ClientRows
    splits: dict[str, tuple[Tensor, Tensor]]
    device: torch.device
    dtype: torch.dtype
    upcoming: Callable[[int], Sequence[int]] = no_clients  # who is likely to train in a round: a hint for prefetching

    def at_round(self, round: int) -> tuple[Method, Work]:
        """Parts and work of a round, with numbers as numbers: for draws and streams, which are made on the host."""
        known = self._rounds
        if round not in known:
            if len(known) > 1:  # this round and the one that is made ready meanwhile: every client of a loop asks
                known.pop(min(known))
            known[round] = self.method.at_round(max(round, 1), self.task)
        return known[round]

    def at_round_on_device(self, round: int) -> tuple[Method, Work]:
        """The same with float fields as tensors on the device: for what a step computes; a GPU is waited for."""
        method, work = self.at_round(round)
        if round not in self._rounds_on_device:
            self._rounds_on_device.clear()
            self._rounds_on_device[round] = method.on(self.device, self.dtype)
        return self._rounds_on_device[round], work

    @cached_property
    def _rounds(self) -> dict[int, tuple[Method, Work]]:
        return {}

    @cached_property
    def _rounds_on_device(self) -> dict[int, Method]:
        return {}

    @property
    def after_training(self) -> list[str]:
        """Parts that share something right after a client's training."""
        return [p.name for p in self.method.parts if p.exchange is not None and p.exchange.when == "after training"]

    def newcomer(self, client: int, client_rows: ClientRows | None = None) -> Tree:
        """State of a client that has none yet."""
        client_rows, tree = client_rows or self.client_rows, {}
        if self.model.private:
            tree[PRIVATE] = {name: self._there(self.model.initial[name]) for name in self.model.private}
        if not self._stateful:
            return tree
        facts = client_rows.facts(client)
        sizes = Sizes(len(client_rows.index[client]), 0, self.task.work.batch, self.task.classes, {})
        for part in self._stateful:
            draws = self.plan.part_draws(part, "init", 0, client, sizes)
            state = part.client_init(self.model, Newcomer(client, facts, draws))
            if state:
                tree[part.name] = {name: self._there(tensor) for name, tensor in state.items()}
        return tree

    @cached_property
    def _stateful(self) -> list[Part]:
        return [part for part in self.method.parts if type(part).client_init is not Part.client_init]

    def _there(self, tensor: Tensor) -> Tensor:
        """A newcomer's tensor on the device; what is the model's start is moved once for all of them."""
        return self._start[id(tensor)] if id(tensor) in self._start else tensor.to(self.device)

    @cached_property
    def _start(self) -> dict[int, Tensor]:
        return {id(tensor): tensor.to(self.device) for tensor in self.model.initial.values()}

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

    def score(self, round: int, received: Received, split: str, first: int, last: int) -> Score:
        """Predictions on rows first..last of a split."""
        method, _ = self.at_round_on_device(round)
        x, y = (column[first:last] for column in self.splits[split])
        confusion, loss = self.scored(
            method, received, to_channels_last(self.client_rows.prepare(x), self.model), y, self.model.run
        )
        return Score(confusion.cpu(), float(loss))

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


def sent(t: Tensor, device: torch.device) -> Tensor:
    """On the device; from memory that a GPU reads by itself, so that the host goes on while it is still busy."""
    if t.device == device or device.type != "cuda":
        return t.to(device)
    return t.pin_memory().to(device, non_blocking=True)


def to_device(tree: Tree, device: torch.device) -> Tree:
    """A client's state where it is needed."""
    return tree_map(lambda t: t.to(device), tree)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Libraries take more or fewer threads by the load of the machine, and other threads round otherwise: so one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
