"""The stacked engine: a cohort's states on a leading axis, the client's loss mapped over it, one backward for all.

The optimiser is an ordinary element-wise one on the stacked leaves, which equals one optimiser per client. Clients are
sorted by their number of steps, and the stack narrows as they finish. A client that has finished may stay in the stack
and train on repeated batches; its results are saved before. Masking its loss instead would not keep momentum and weight
decay from moving its weights.
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
from unskew.client.feed import BatchFeed, longest_first, stacking_key
from unskew.client.round import PRIVATE, finish, leaves_and_buffers, step_loss, with_private, without_row_broadcasts
from unskew.client.seal import seal_many
from unskew.client.share import share_many
from unskew.engines.engine import ConfusionScore, EngineContext, one_thread
from unskew.engines.padding import PaddingCount
from unskew.engines.stacked import kernels
from unskew.engines.stacked.cohort_memory import available_memory, bytes_of_step, cohort_size
from unskew.engines.stacked.cohort_stack import CohortStack, stack_key
from unskew.engines.stacked.fuse import fuse
from unskew.engines.stacked.prefetch import Prefetch
from unskew.engines.stacked.stacked_evaluation import StackedEvaluator
from unskew.engines.stacked.stacked_layers import use_stacked_layers
from unskew.protocol.method import Method
from unskew.protocol.part import Part
from unskew.protocol.server_view import StandIn
from unskew.protocol.work import Work
from unskew.wire.requests_and_replies import ClientReply, CohortReply, Received, replies_one_by_one

T = TypeVar("T")


class StackedEngine:
    """Trains whole cohorts at once on one device."""

    name = "stacked"
    workers = 1

    def __init__(self, context: EngineContext) -> None:
        self.context = replace(
            context,
            model=context.model.with_layers(lambda blocks: fuse(use_stacked_layers(blocks))),
            client_rows=replace(context.client_rows, gather=kernels.gather_rows),
        )
        self.device = context.device
        self.add_up = kernels.message_adder(self.device)
        self.limit: int | None = None  # clients that fit at once; measured on the first cohort
        self._share_limit = sys.maxsize  # clients that fit in an exchange; lowered when one runs out of memory
        self._evaluator = StackedEvaluator(self.context)
        self._padding = PaddingCount()
        self._stack: CohortStack | None = None
        self._stack_key: tuple[Any, ...] = ()
        self._prefetch, self._next_round = Prefetch(self.context), 0  # the round to prepare while this one trains
        # Optimistic: replies are handed out unchecked; for each cohort a tensor says whether its messages are finite.
        self._optimistic, self._unverified = True, list[Tensor]()
        self._computed_rows: list[tuple[int, int]] = []  # of this round; counted only if it is not replayed

    def close(self) -> None:
        """Free the device's memory now: another run of this process may need it before garbage collection."""
        self._release()
        self._evaluator.release()

    def _threads(self) -> contextlib.AbstractContextManager[None]:
        return one_thread() if self.device.type == "cpu" else contextlib.nullcontext()

    @property
    def padding_share(self) -> float:
        return self._padding.share

    def train(
        self, round: int, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply | CohortReply]:
        """Each client's reply, in the order given; one CohortReply if all were trained together."""
        self._unverified, self._computed_rows, self._next_round = [], [], round + 1
        return self._train(self.context.client_rows, round, received, clients, state_of)

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], states: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """Train on the rows that stand in for absent clients."""
        client_rows = self.context.stand_in_rows(rows)
        first_states = {k: states.get(k) or self.context.newcomer_state(k, client_rows) for k in rows}
        return replies_one_by_one(self._train(client_rows, round, received, list(rows), first_states.__getitem__))

    def share(
        self, round: int, part: str, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on a stack of clients, whose rows are padded to the longest."""
        client_rows = self.context.client_rows
        longest = max((len(client_rows.index[k]) for k in clients), default=0)
        row_bytes = client_rows.x[0].numel() * self.context.dtype.itemsize
        # Rows, activations and messages are guessed as eight times the rows; a cohort that does not fit is halved.
        size = min(cohort_size(8 * longest * row_bytes, available_memory(self.device)), self._share_limit)

        def share_cohort(cohort: list[int]) -> list[ClientReply]:
            states = [to_device(state_of(k), self.device) for k in cohort]
            with self._threads():
                return list(self._share(round, part, received, cohort, states))

        for replies, max_clients in self._halve_until_it_fits(clients, size, share_cohort):
            if max_clients < size:  # the lower limit also holds for later rounds
                self._share_limit = max_clients
            yield from replies
            del replies

    def verify_finite(self) -> bool:
        """Prepare the next round, then wait for the device's checks; one non-finite message ends optimistic mode.

        Optimistically, nothing waits before messages are added up, so the host works while the device trains.
        """
        self._prepare_next_round()
        unverified, self._unverified = self._unverified, []
        finite = not unverified or bool(torch.cat(unverified).all())
        for needed, computed in self._computed_rows if finite else ():
            self._padding.add(needed, computed)
        self._optimistic, self._computed_rows = self._optimistic and finite, []
        return finite

    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Score a split."""
        with self._threads():
            return self._evaluator.score(round, received, split)

    def _train(
        self,
        client_rows: ClientRows,
        round: int,
        received: Received,
        clients: list[int],
        state_of: Callable[[int], Tree],
    ) -> Iterator[ClientReply | CohortReply]:
        """Train cohorts of clients that can be stacked and that fit; replies come in the order given."""
        method, _ = self.context.at_round(round)
        groups: dict[tuple[Any, ...], list[int]] = {}
        # Without streams and client state, all clients can be stacked.
        streams = any(type(part).streams is not Part.streams for part in method.parts)
        for k in clients:
            tree = state_of(k)
            groups.setdefault(stacking_key(method, received, tree) if streams or tree else (), []).append(k)
        done: dict[int, ClientReply] = {}
        remaining = list(reversed(clients))
        for group in groups.values():
            if self.limit is None:
                longest = max(group, key=lambda k: len(client_rows.index[k]))
                self.limit = self._measure(
                    client_rows, round, received, longest, to_device(state_of(longest), self.device)
                )

            def train_cohort(cohort: list[int]) -> CohortReply:
                ordered = longest_first(client_rows, cohort)
                states = [to_device(tree, self.device) if (tree := state_of(k)) else {} for k in ordered]
                with self._threads():
                    return self._train_cohort(client_rows, round, received, ordered, states).ordered(cohort)

            for reply, max_clients in self._halve_until_it_fits(group, self.limit, train_cohort):
                self.limit = max_clients
                if len(reply.clients) == len(clients):
                    yield reply
                    return
                done |= {one.client: one for one in reply.each()}
                del reply  # otherwise its tensors stay in memory while the next cohort trains
                while remaining and remaining[-1] in done:
                    yield done.pop(remaining.pop())

    def _measure(self, client_rows: ClientRows, round: int, received: Received, client: int, state: Tree) -> int:
        """How many clients like this one, the longest, fit; measured in a stack, whose layers save other tensors."""
        context = self.context
        method, _ = context.at_round_on_device(round)
        feed = BatchFeed(context, client_rows, round, received, [client], [state])
        broadcasts = without_row_broadcasts(method, received)
        leaves, buffers = leaves_and_buffers(context.model, {name: t[None] for name, t in received.model.items()})
        mapped_loss = vmap(
            lambda params, buffers, state, facts, inputs: step_loss(
                method, context.model, params, buffers, broadcasts, state, facts, inputs
            )[0]
        )

        def step() -> Tensor:
            return mapped_loss(leaves, buffers, stack([state]), feed.facts, feed.at(0, 1)).sum()

        weights = sum(t.numel() * t.element_size() for t in received.model.values())
        # Leaf, gradient, two optimiser slots, final copy, message and new state; a seal needs as many again.
        copies = 7 * (2 if method.sealing_parts else 1)
        return cohort_size(bytes_of_step(step) + copies * weights, available_memory(self.device))

    def _train_cohort(
        self, client_rows: ClientRows, round: int, received: Received, clients: list[int], states: list[Tree]
    ) -> CohortReply:
        """Train clients in one stack, sorted from most to fewest steps."""
        context = self.context
        method, work = context.at_round_on_device(round)
        prefetched = self._prefetch.take(round, clients) if client_rows is context.client_rows else None
        feed = prefetched or BatchFeed(context, client_rows, round, received, clients, states)
        order = sorted(range(len(clients)), key=lambda i: -feed.steps[i])
        if order != list(range(len(clients))):  # additional rows of an epoch can change the order
            clients, states = [clients[i] for i in order], [states[i] for i in order]
            return self._train_cohort(client_rows, round, received, clients, states)
        (work_done, lr), client_state = feed.work_done, stack(states)
        # From here until `verify_finite`, nothing synchronises with the GPU if the method only sums messages.
        final, terms = self._run_steps(method, work, received, client_state, feed)
        shared: dict[str, Any] = {}
        for part in context.after_training_parts if client_rows is context.client_rows else ():
            each = unstack(client_state.get(part, {}), len(clients))
            out, new = share_many(context, part, round, final, each, clients)
            shared, client_state = shared | ({part: out} if out else {}), client_state | ({part: new} if new else {})
        mapped_finish = vmap(
            lambda f, k, a, e: finish(method, context.model, with_private(received, k), f, k, a, e, lr)
        )
        message, client_state = mapped_finish(final, client_state, feed.facts, work_done)
        if client_rows is context.client_rows:  # a stand-in's message is not sent, so it is not sealed
            message, client_state = seal_many(context, round, received, message, client_state, clients)
        means = {name: total / work_done.steps for name, total in terms.items()}
        finite = _finite_per_client((message, shared), feed.facts.rows)
        rows = [client_rows.index[k].shape[0] for k in clients]
        reply = CohortReply(clients, list(range(len(clients))), round, rows, message, client_state, means, shared)
        if client_rows is context.client_rows and self._optimistic:
            self._unverified.append(finite)
            return reply
        self._prepare_next_round()  # while the device still trains: `tolist` waits for it
        # A non-finite sum may be an overflow: None asks the server to check the message itself.
        return replace(reply, finite=[flag or None for flag in finite.tolist()])

    def _prepare_next_round(self) -> None:
        """Make the next round's plans and, if they fit into this round's stack and memory, its first batches."""
        next_round, self._next_round = self._next_round, 0
        with contextlib.suppress(torch.OutOfMemoryError):  # otherwise they are made when the round begins
            feed = self._prefetch.prepare(next_round, self.limit or 0) if next_round else None
            if feed and self._stack and self._stack.fits(feed):
                self._stack.stage(feed)

    def _run_steps(
        self, method: Method, work: Work, received: Received, client_state: Tree, feed: BatchFeed
    ) -> tuple[State, State]:
        """Run a cohort's steps, in the stack of the last cohort if it has the same key."""
        inputs = (method, without_row_broadcasts(method, received), client_state, feed.facts)
        key = stack_key(work, inputs, feed)
        if self._stack is None or self._stack_key != key or self._stack.capacity < len(feed.clients):
            self._release()  # first, because two stacks may not fit
            self._stack, self._stack_key = CohortStack(self.context, work, inputs, feed), key
        final, terms, computed = self._stack.train(work, inputs, feed)
        self._computed_rows.append((feed.real_rows, computed * work.batch))
        return final, terms

    def _share(
        self, round: int, part: str, received: Received, clients: list[int], states: list[Tree]
    ) -> Iterator[ClientReply]:
        each = [tree.get(part, {}) for tree in states]
        private = [tree[PRIVATE] for tree in states if PRIVATE in tree and received.model]
        state = {k: t.expand(len(clients), *t.shape) for k, t in received.model.items()} | stack(private or [{}])
        sent, kept = share_many(self.context, part, round, state, each, clients)
        for k, out, new in zip(clients, *(unstack(tree, len(clients)) for tree in (sent, kept))):
            rows = len(self.context.client_rows.index[k])
            yield ClientReply(k, round, rows, {part: out} if out else {}, {part: new} if new else {})

    def _halve_until_it_fits(
        self, clients: list[int], size: int, run: Callable[[list[int]], T]
    ) -> Iterator[tuple[T, int]]:
        """Results of cohorts of at most `size` clients, each with that size; a cohort that does not fit is halved."""
        queue = list(_split_evenly(clients, size))
        while queue:
            cohort = queue.pop(0)
            try:
                result = run(cohort)
            except torch.OutOfMemoryError:
                if len(cohort) == 1:
                    raise
            else:
                yield result, size
                del result
                continue
            # Outside the except block, where the error no longer holds the failed step's tensors.
            self._release()
            self._evaluator.release()
            gc.collect()  # automatic collection is paused during a round
            torch.cuda.empty_cache()
            size = (len(cohort) + 1) // 2
            queue = [piece for pending in (cohort, *queue) for piece in _split_evenly(pending, size)]

    def _release(self) -> None:
        """Free the memory of the last cohort's stack."""
        if self._stack is not None:
            self._stack.release()
            self._stack = None


def _finite_per_client(trees: Any, like: Tensor) -> Tensor:
    """For each client of `like` [m], whether the sums of its tensors are finite; reading the result synchronises."""
    # Not in float64: PyTorch first converts all numbers, 500 us for 325 MB on an H200.
    sums = [t.reshape(len(t), -1).sum(1, dtype=torch.float32) for t in tree_leaves(trees) if t.is_floating_point()]
    return torch.isfinite(torch.stack([like.float(), *sums])).all(0)


def _split_evenly(clients: list[int], size: int) -> Iterator[list[int]]:
    """Cohorts of at most `size`, as equal as possible."""
    count = -(-len(clients) // size)
    for i in range(count):
        yield clients[len(clients) * i // count : len(clients) * (i + 1) // count]
