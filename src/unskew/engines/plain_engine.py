"""The plain engine: one client after another, `loss.backward()` and `torch.optim`, without any optimisation.

Every other engine must reproduce its numbers. It is also the engine for debugging: breakpoints and prints inside a
method's loss see one client's ordinary tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unskew.base.tree import Message, State, Tree, drop_padding, tree_map
from unskew.client.client_rows import ClientRows, to_device
from unskew.client.feed import BatchFeed
from unskew.client.round import WorkDone, finish, leaves_and_buffers, step_loss, with_private, without_row_broadcasts
from unskew.client.seal import seal_draws, seal_one
from unskew.client.share import share_draws, share_one
from unskew.engines.engine import AddUp, ConfusionScore, EngineContext, one_thread, sum_scores
from unskew.engines.padding import PaddingCount
from unskew.protocol.server_view import StandIn
from unskew.protocol.work import Work, clip_gradients
from unskew.wire.requests_and_replies import ClientReply, Received

CHUNK = 1000  # rows scored in one call


class PlainEngine:
    """Trains and scores in this process, client by client."""

    name = "plain"
    workers = 1

    def __init__(self, context: EngineContext) -> None:
        self.context, self.device = context, context.device
        self.add_up: AddUp | None = None
        self._padding = PaddingCount()

    @property
    def padding_share(self) -> float:
        return self._padding.share

    def train(
        self, round: int, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """Each client's reply, in the order given."""
        for client in clients:
            yield self._train_one(self.context.client_rows, round, received, client, state_of(client))

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], states: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """Train on the rows that stand in for absent clients."""
        client_rows = self.context.stand_in_rows(rows)
        for client in rows:
            state = states.get(client) or self.context.newcomer_state(client, client_rows)
            yield self._train_one(client_rows, round, received, client, state)

    def share(
        self, round: int, part: str, received: Received, clients: list[int], state_of: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on each client."""
        for client in clients:
            state = to_device(state_of(client), self.device)
            sent, kept = self._share(round, part, client, with_private(received, state).model, state)
            rows = len(self.context.client_rows.index[client])
            yield ClientReply(client, round, rows, {part: sent} if sent else {}, {part: kept} if kept else {})

    def verify_finite(self) -> bool:
        """No reply claims to be finite, so the server checks each one when it arrives."""
        return True

    @one_thread()
    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Score a split."""
        rows = len(self.context.splits[split].y)
        starts = range(0, rows, CHUNK)
        return sum_scores(self.context.score(round, received, split, a, min(a + CHUNK, rows)) for a in starts)

    def close(self) -> None:
        """Nothing to free."""

    @one_thread()  # the number of threads changes rounding
    def _train_one(
        self, client_rows: ClientRows, round: int, received: Received, client: int, client_state: Tree
    ) -> ClientReply:
        """One client's round, from the received model to the reply."""
        context, model = self.context, self.context.model
        method, work = context.at_round_on_device(round)
        client_state = to_device(client_state, self.device)
        feed = BatchFeed(context, client_rows, round, received, [client], [client_state])
        facts, steps = without_client_axis(feed.facts), feed.steps[0]
        start = with_private(received, client_state)
        final, terms = self._run_steps(feed, start, client_state)
        shared: Message = {}
        if client_rows is context.client_rows:  # a stand-in's rows are on the server already: it shares nothing
            for part in context.after_training_parts:
                sent, kept = self._share(round, part, client, final, client_state)
                shared |= {part: sent} if sent else {}
                client_state = client_state | ({part: kept} if kept else {})
        scalar = facts.counts.new_tensor
        done = WorkDone(scalar(float(steps)), scalar(work.effective_steps(steps)))
        message, state = finish(method, model, start, final, client_state, facts, done, scalar(work.lr))
        if client_rows is context.client_rows:  # a stand-in's message is not sent, so it is not sealed
            message, state = seal_one(context, round, received, message, state, seal_draws(context, round, client))
        self._padding.add(feed.real_rows, steps * work.batch)
        rows = len(client_rows.index[client])
        return ClientReply(client, round, rows, drop_padding(message), state, terms, shared)

    def _run_steps(self, feed: BatchFeed, start: Received, client_state: Tree) -> tuple[State, State]:
        """The local steps: the final model, and the mean of each loss term."""
        model, facts, steps = self.context.model, without_client_axis(feed.facts), feed.steps[0]
        method, work = self.context.at_round_on_device(feed.round)
        leaves, buffers = leaves_and_buffers(model, start.model)
        broadcasts, totals = without_row_broadcasts(method, start), State()
        optimiser = torch_optimiser(leaves.values(), work)
        for step in range(steps):
            inputs = without_client_axis(feed.at(step, 1))
            loss, (buffers, terms) = step_loss(method, model, leaves, buffers, broadcasts, client_state, facts, inputs)
            for leaf in leaves.values():
                # torch.optim skips a leaf without a gradient, and with it weight decay and momentum.
                leaf.grad = torch.zeros_like(leaf)
            loss.backward()  # type: ignore[no-untyped-call]
            if work.clip is not None:
                grads: list[Any] = [leaf.grad for leaf in leaves.values()]
                for leaf, grad in zip(leaves.values(), clip_gradients(grads, work.clip, stacked=False)):
                    leaf.grad = grad
            if work.scope == "step":
                optimiser = torch_optimiser(leaves.values(), work)
            optimiser.step()
            totals = {name: totals.get(name, 0) + term for name, term in terms.items()}
        final = {name: leaf.detach() for name, leaf in leaves.items()} | buffers
        return final, {name: total / steps for name, total in totals.items()}

    @one_thread()
    def _share(
        self, round: int, part: str, client: int, state: State, client_state: Tree
    ) -> tuple[dict[str, Any], State]:
        context = self.context
        draws, facts = share_draws(context, part, round, client), context.client_rows.facts(client)
        index = context.client_rows.index[client].to(self.device)
        sent, kept = share_one(context, part, round, state, client_state.get(part, {}), draws, facts, index)
        return drop_padding(sent), kept


def torch_optimiser(leaves: Iterable[Tensor], work: Work) -> torch.optim.Optimizer:
    """The torch.optim optimiser of the round's settings."""
    if work.optimiser == "sgd":
        return torch.optim.SGD(leaves, work.lr, work.momentum, weight_decay=work.weight_decay, nesterov=work.nesterov)
    adam = torch.optim.AdamW if work.optimiser == "adamw" else torch.optim.Adam
    return adam(leaves, work.lr, work.betas, weight_decay=work.weight_decay)


def without_client_axis(tree: Any) -> Any:
    """The tensors of a feed of one client, without the leading client axis."""
    return tree_map(lambda t: t[0], tree)
