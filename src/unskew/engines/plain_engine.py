"""The plain engine: one client after another, `loss.backward()` and `torch.optim`, and nothing to make it fast.

Every other engine must give its numbers. It is also the engine for debugging: breakpoints and prints inside a method's
loss see one client's ordinary tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from unskew.base.tree import Message, State, Tree, pack, tree_map
from unskew.client.client_rows import ClientRows, to_device
from unskew.client.feed import BatchFeed
from unskew.client.round import WorkDone, begin, finish, for_steps, step_loss, with_private
from unskew.client.seal import seal_draws, seal_one
from unskew.client.share import share_draws, share_one
from unskew.engines.engine import AddUp, ConfusionScore, EngineContext, one_thread, sum_of
from unskew.engines.padding import PaddingCount
from unskew.protocol.server_view import StandIn
from unskew.protocol.work import Work, clipped
from unskew.wire.message import ClientReply, Received

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
        self, round: int, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """Each client's reply, in the order given."""
        for client in clients:
            yield self._train_one(self.context.client_rows, round, received, client, mine(client))

    def stand_in(
        self, round: int, received: Received, rows: dict[int, StandIn], mine: dict[int, Tree]
    ) -> Iterator[ClientReply]:
        """The same on the rows that stand in for absent clients."""
        client_rows = self.context.stand_in_rows(rows)
        for client in rows:
            state = mine.get(client) or self.context.newcomer(client, client_rows)
            yield self._train_one(client_rows, round, received, client, state)

    def share(
        self, round: int, part: str, received: Received, clients: list[int], mine: Callable[[int], Tree]
    ) -> Iterator[ClientReply]:
        """One part's exchange on each client."""
        for client in clients:
            state = to_device(mine(client), self.device)
            sent, kept = self._share(round, part, client, with_private(received, state).model, state)
            rows = len(self.context.client_rows.index[client])
            yield ClientReply(client, round, rows, {part: sent} if sent else {}, {part: kept} if kept else {})

    def verify_finite(self) -> bool:
        """No reply claims to be finite, so the server looks at each one when it arrives."""
        return True

    @one_thread()
    def evaluate(self, round: int, received: Received, split: str) -> ConfusionScore:
        """Scores of a split."""
        rows = len(self.context.splits[split][1])
        starts = range(0, rows, CHUNK)
        return sum_of(self.context.score(round, received, split, a, min(a + CHUNK, rows)) for a in starts)

    def close(self) -> None:
        """Nothing to free."""

    @one_thread()  # the number of threads changes rounding
    def _train_one(
        self, client_rows: ClientRows, round: int, received: Received, client: int, mine: Tree
    ) -> ClientReply:
        """One client's round, from the received model to the reply."""
        context, model = self.context, self.context.model
        method, work = context.at_round_on_device(round)
        mine = to_device(mine, self.device)
        feed = BatchFeed(context, client_rows, round, received, [client], [mine])
        facts, steps = only_client(feed.facts), feed.steps[0]
        start = with_private(received, mine)
        final, terms = self._descend(feed, start, mine)
        shared: Message = {}
        if client_rows is context.client_rows:  # a stand-in's rows are on the server already: it shares nothing
            for part in context.after_training:
                sent, kept = self._share(round, part, client, final, mine)
                shared |= {part: sent} if sent else {}
                mine = mine | ({part: kept} if kept else {})
        number = facts.counts.new_tensor
        done = WorkDone(number(float(steps)), number(work.effective_steps(steps)))
        message, state = finish(method, model, start, final, mine, facts, done, number(work.lr))
        if client_rows is context.client_rows:  # a stand-in's message does not travel
            message, state = seal_one(context, round, received, message, state, seal_draws(context, round, client))
        self._padding.add(feed.needed, steps * work.batch)
        rows = len(client_rows.index[client])
        return ClientReply(client, round, rows, pack(message), state, terms, shared)

    def _descend(self, feed: BatchFeed, start: Received, mine: Tree) -> tuple[State, State]:
        """The local steps: the final model, and the mean of each loss term."""
        model, facts, steps = self.context.model, only_client(feed.facts), feed.steps[0]
        method, work = self.context.at_round_on_device(feed.round)
        leaves, buffers = begin(model, start.model)
        broadcasts, totals = for_steps(method, start), State()
        optimiser = optimiser_for(leaves.values(), work)
        for step in range(steps):
            inputs = only_client(feed.at(step, 1))
            loss, (buffers, terms) = step_loss(method, model, leaves, buffers, broadcasts, mine, facts, inputs)
            for leaf in leaves.values():
                # Without a gradient torch.optim would leave out the leaf, and with it weight decay and momentum.
                leaf.grad = torch.zeros_like(leaf)
            loss.backward()  # type: ignore[no-untyped-call]
            if work.clip is not None:
                grads: list[Any] = [leaf.grad for leaf in leaves.values()]
                for leaf, grad in zip(leaves.values(), clipped(grads, work.clip, stacked=False)):
                    leaf.grad = grad
            if work.scope == "step":
                optimiser = optimiser_for(leaves.values(), work)
            optimiser.step()
            totals = {name: totals.get(name, 0) + term for name, term in terms.items()}
        final = {name: leaf.detach() for name, leaf in leaves.items()} | buffers
        return final, {name: total / steps for name, total in totals.items()}

    @one_thread()
    def _share(self, round: int, part: str, client: int, state: State, mine: Tree) -> tuple[dict[str, Any], State]:
        context = self.context
        draws, facts = share_draws(context, part, round, client), context.client_rows.facts(client)
        index = context.client_rows.index[client].to(self.device)
        sent, kept = share_one(context, part, round, state, mine.get(part, {}), draws, facts, index)
        return pack(sent), kept


def optimiser_for(leaves: Iterable[Tensor], work: Work) -> torch.optim.Optimizer:
    """What the round's settings name, from torch.optim."""
    if work.optimiser == "sgd":
        return torch.optim.SGD(leaves, work.lr, work.momentum, weight_decay=work.weight_decay, nesterov=work.nesterov)
    adam = torch.optim.AdamW if work.optimiser == "adamw" else torch.optim.Adam
    return adam(leaves, work.lr, work.betas, weight_decay=work.weight_decay)


def only_client(tree: Any) -> Any:
    """A feed's tensors without the leading axis of clients, of which there is one."""
    return tree_map(lambda t: t[0], tree)
