"""The stacked engine: a cohort's states on a leading axis, the client's loss mapped over it, one backward for all.

The optimiser is an ordinary element-wise one on the stacked leaves, which equals one optimiser per client. Clients are
sorted by their number of steps, and the stack narrows as they end. Rows past their end may go on training on repeated
batches that nobody reads: masking their loss instead would let momentum and weight decay move them.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from unskew.base.tree import State, Tree, stack, unstack
from unskew.base.vmap import vmap
from unskew.client.client_rows import ClientRows, to_device
from unskew.client.feed import BatchFeed, longest_first, signature
from unskew.client.round import PRIVATE, begin, finish, for_steps, step_loss, with_private
from unskew.client.seal import seal_many
from unskew.client.share import share_many
from unskew.engines.engine import ConfusionScore, EngineContext, one_thread
from unskew.engines.padding import PaddingCount
from unskew.engines.stacked import kernels
from unskew.engines.stacked.cohort_memory import available_memory, bytes_of_step, cohort_size
from unskew.engines.stacked.cohort_stack import CohortStack, shape_of
from unskew.engines.stacked.fuse import fuse
from unskew.engines.stacked.prefetch import Prefetch
from unskew.engines.stacked.stacked_evaluation import StackedEvaluator
from unskew.engines.stacked.stacked_layers import for_stack
from unskew.protocol.method import Method
from unskew.protocol.part import Part
from unskew.protocol.server_view import StandIn
from unskew.protocol.work import Work
from unskew.wire.message import ClientReply, CohortReply, Received, replies_one_by_one

T = TypeVar("T")


class StackedEngine:
    """Trains whole cohorts at once on one device."""

    name = "stacked"
    workers = 1

    def __init__(self, context: EngineContext) -> None:
        self.context = replace(
            context,
            model=context.model.rewritten(lambda blocks: fuse(for_stack(blocks))),
            client_rows=replace(context.client_rows, gather=kernels.gather_rows),
        )
        self.device = context.device
        self.add_up = kernels.message_adder(self.device)
        self.limit: int | None = None  # clients that fit at once; found out on the first cohort
        self._sharing = sys.maxsize  # clients that fit in an exchange, as far as is known
        self._scoring = StackedEvaluator(self.context)
        self._padding = PaddingCount()
        self._stack: CohortStack | None = None
        self._shape: tuple[Any, ...] = ()
        self._ahead, self._next = Prefetch(self.context), 0  # the round to make ready while this one trains
        self._optimistic, self._unverified = True, list[Tensor]()  # of each cohort, whether its messages are finite
        self._computed: list[tuple[int, int]] = []  # rows of the round, which count when it does

    def close(self) -> None:
        """Give the device's memory back now: another run of this process may need it before the collector comes."""
        self._release()
        self._scoring.release()

    def _threads(self) -> contextlib.AbstractContextManager[None]:
        return one_thread() if self.device.type == "cpu" else contextlib.nullcontext()

    @property
    def padding_share(self) -> float:
        return self._padding.share

    def train(
        self, round: int, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply | CohortReply]:
        """Every client's outcome, in the order given; all at once where they were trained so."""
        self._unverified, self._computed, self._next = [], [], round + 1
        return self._train(self.context.client_rows, round, received, clients, mine)

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], mine: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """The same for stand-ins."""
        client_rows = self.context.stand_in_rows(rows)
        states = {k: mine.get(k) or self.context.newcomer(k, client_rows) for k in rows}
        return replies_one_by_one(self._train(client_rows, round, received, list(rows), states.__getitem__))

    def share(
        self, round: int, part: str, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on a stack of clients, whose rows are padded to the longest."""
        client_rows = self.context.client_rows
        longest = max((len(client_rows.index[k]) for k in clients), default=0)
        row = client_rows.x[0].numel() * self.context.dtype.itemsize
        # Rows, their activations and what is sent: eight times the rows is a start, and what does not fit is halved.
        size = min(cohort_size(8 * longest * row, available_memory(self.device)), self._sharing)

        def play(cohort: list[int]) -> list[ClientReply]:
            states = [to_device(mine(k), self.device) for k in cohort]
            with self._threads():
                return list(self._share(round, part, received, cohort, states))

        for outcomes, fits in self._fitting(clients, size, play):
            self._sharing = fits if fits < size else self._sharing  # once too many are too many for good
            yield from outcomes
            del outcomes

    def verify_finite(self) -> bool:
        """Makes the next round ready, then waits for what the device has found; one message in doubt ends the trust.

        Without a wait before messages are added up, the host works while the device trains.
        """
        self._get_ready()
        doubts, self._unverified = self._unverified, []
        fine = not doubts or bool(torch.cat(doubts).all())
        for needed, computed in self._computed if fine else ():
            self._padding.add(needed, computed)
        self._optimistic, self._computed = self._optimistic and fine, []
        return fine

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Scores of a split."""
        with self._threads():
            return self._scoring.score(round, received, split)

    def _train(
        self, client_rows: ClientRows, round: int, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply | CohortReply]:
        """Cohorts of clients that can be stacked and that fit; outcomes are handed out in the order given."""
        method, _ = self.context.at_round(round)
        groups: dict[tuple[Any, ...], list[int]] = {}
        streams = any(type(part).streams is not Part.streams for part in method.parts)  # else all are alike
        for k in clients:
            tree = mine(k)
            groups.setdefault(signature(method, received, tree) if streams or tree else (), []).append(k)
        done: dict[int, ClientReply] = {}
        due = list(reversed(clients))
        for group in groups.values():
            if self.limit is None:
                longest = max(group, key=lambda k: len(client_rows.index[k]))
                self.limit = self._measure(client_rows, round, received, longest, to_device(mine(longest), self.device))

            def play(cohort: list[int]) -> CohortReply:
                ordered = longest_first(client_rows, cohort)
                states = [to_device(tree, self.device) if (tree := mine(k)) else {} for k in ordered]
                with self._threads():
                    return self._cohort(client_rows, round, received, ordered, states).ordered(cohort)

            for found, fits in self._fitting(group, self.limit, play):
                self.limit = fits
                if len(found.clients) == len(clients):
                    yield found
                    return
                done |= {outcome.client: outcome for outcome in found.each()}
                del found  # or they would live while the next cohort trains
                while due and due[-1] in done:
                    yield done.pop(due.pop())

    def _measure(self, client_rows: ClientRows, round: int, received: Received, client: int, mine: Tree) -> int:
        """How many clients like this one, the longest, fit; as a stack of one, whose layers keep other tensors."""
        context = self.context
        method, _ = context.at_round_on_device(round)
        feed = BatchFeed(context, client_rows, round, received, [client], [mine])
        seen, start = for_steps(method, received), {name: t[None] for name, t in received.model.items()}
        leaves, buffers = begin(context.model, start)
        each = vmap(lambda p, b, k, f, n: step_loss(method, context.model, p, b, seen, k, f, n)[0])

        def step() -> Tensor:
            return each(leaves, buffers, stack([mine]), feed.facts, feed.at(0, 1)).sum()

        weights = sum(t.numel() * t.element_size() for t in received.model.values())
        # leaf, gradient, two optimiser slots, final copy, message and new state; a seal computes with as many again
        copies = 7 * (2 if method.seals else 1)
        return cohort_size(bytes_of_step(step) + copies * weights, available_memory(self.device))

    def _cohort(
        self, client_rows: ClientRows, round: int, received: Received, clients: list[int], mine: list[Tree]
    ) -> CohortReply:
        """Train clients in one stack, the longest first."""
        context = self.context
        method, work = context.at_round_on_device(round)
        early = self._ahead.take(round, clients) if client_rows is context.client_rows else None
        feed = early or BatchFeed(context, client_rows, round, received, clients, mine)
        order = sorted(range(len(clients)), key=lambda i: -feed.steps[i])
        if order != list(range(len(clients))):  # rows that join the epoch can change who is longest
            return self._cohort(client_rows, round, received, [clients[i] for i in order], [mine[i] for i in order])
        (ending, lr), kept = feed.ending, stack(mine)
        # From here until `verify_finite` a method that only adds up waits for no GPU, while the host is ahead of it.
        final, terms = self._steps(method, work, received, kept, feed)
        shared: dict[str, Any] = {}
        for part in context.after_training if client_rows is context.client_rows else ():
            each = unstack(kept.get(part, {}), len(clients))
            out, new = share_many(context, part, round, final, each, clients, each_its_model=True)
            shared, kept = shared | ({part: out} if out else {}), kept | ({part: new} if new else {})
        close = vmap(lambda f, k, a, e: finish(method, context.model, with_private(received, k), f, k, a, e, lr))
        message, kept = close(final, kept, feed.facts, ending)
        if client_rows is context.client_rows:  # a stand-in's message does not travel
            message, kept = seal_many(context, round, received, message, kept, clients)
        means = {name: total / ending.steps for name, total in terms.items()}
        fine = _finite((message, shared), feed.facts.rows)
        rows = [client_rows.index[k].shape[0] for k in clients]
        found = CohortReply(clients, list(range(len(clients))), round, rows, message, kept, means, shared)
        if client_rows is context.client_rows and self._optimistic:
            self._unverified.append(fine)
            return found
        self._get_ready()  # before the wait, which takes longer
        # Not finite may be an overflow of the sum: None asks whoever takes the message in to look closely.
        return replace(found, finite=[whole or None for whole in fine.tolist()])

    def _get_ready(self) -> None:
        """Plans of the next round, and its first batches, if they fit where this round's are and memory lasts."""
        coming, self._next = self._next, 0
        with contextlib.suppress(torch.OutOfMemoryError):  # then they are made when the round begins
            whole = self._ahead.prepare(coming, self.limit or 0) if coming else None
            if whole and self._stack and self._stack.takes(whole):
                self._stack.stage(whole)

    def _steps(
        self, method: Method, work: Work, received: Received, mine: Tree, feed: BatchFeed
    ) -> tuple[State, State]:
        """Train in the memory of the cohort before, if the shapes are the same."""
        given = (method, for_steps(method, received), mine, feed.facts)
        shape = shape_of(work, given, feed)
        if self._stack is None or self._shape != shape or self._stack.capacity < len(feed.clients):
            self._release()  # before the new one is made: both may not fit
            self._stack, self._shape = CohortStack(self.context, work, given, feed), shape
        final, terms, computed = self._stack.train(work, given, feed)
        self._computed.append((feed.needed, computed * work.batch))
        return final, terms

    def _share(
        self, round: int, part: str, received: Received, clients: list[int], mine: list[Tree]
    ) -> Iterator[ClientReply]:
        each = [tree.get(part, {}) for tree in mine]
        private = [tree[PRIVATE] for tree in mine if PRIVATE in tree and received.model]
        state = {k: t.expand(len(clients), *t.shape) for k, t in received.model.items()} | stack(private or [{}])
        sent, kept = share_many(self.context, part, round, state, each, clients, each_its_model=True)
        for k, out, new in zip(clients, *(unstack(tree, len(clients)) for tree in (sent, kept))):
            rows = len(self.context.client_rows.index[k])
            yield ClientReply(k, round, rows, {part: out} if out else {}, {part: new} if new else {})

    def _fitting(self, clients: list[int], size: int, play: Callable[[list[int]], T]) -> Iterator[tuple[T, int]]:
        """Outcomes of cohorts of at most `size`, and that size; one that does not fit is halved and played again."""
        queue = list(_pieces(clients, size))
        while queue:
            cohort = queue.pop(0)
            try:
                outcomes = play(cohort)
            except torch.OutOfMemoryError:
                if len(cohort) == 1:
                    raise
            else:
                yield outcomes, size
                del outcomes
                continue
            # Out here, where the error and with it what the failed step had made are gone.
            self._release()
            self._scoring.release()
            gc.collect()  # while a round is played nobody else does
            torch.cuda.empty_cache()
            size = (len(cohort) + 1) // 2
            queue = [piece for waiting in (cohort, *queue) for piece in _pieces(waiting, size)]

    def _release(self) -> None:
        """Give the memory of the last cohort's stack back."""
        if self._stack is not None:
            self._stack.release()
            self._stack = None


def _finite(trees: Any, like: Tensor) -> Tensor:
    """For each client, as in `like` [m], whether the sums of its numbers are finite; reading it waits for them."""
    # Not in float64: PyTorch writes all numbers out in it first, 500 us for 325 MB on an H200.
    sums = [t.reshape(len(t), -1).sum(1, dtype=torch.float32) for t in tree_leaves(trees) if t.is_floating_point()]
    return torch.isfinite(torch.stack([like.float(), *sums])).all(0)


def _pieces(clients: list[int], size: int) -> Iterator[list[int]]:
    """Cohorts of at most `size`, as equal as possible."""
    count = -(-len(clients) // size)
    for i in range(count):
        yield clients[len(clients) * i // count : len(clients) * (i + 1) // count]
