"""What a client would send, worked out from shapes: the contract that its replies are held to.

`finish`, `share` and `seal` run once on tensors of zeros. The meta device, whose tensors have only shapes, would do for
most hooks, but importing its rules takes seconds, and a hook that needs a number (`.item()`) cannot run on it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from unskew.base.tree import Message, Tree, tree_map
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import ClientRows
from unskew.client.plan import Plan
from unskew.client.round import WorkDone, finish, with_label_stats, with_private
from unskew.client.seal import seal_draws, seal_one
from unskew.client.share import share_draws, share_one
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method, Task
from unskew.protocol.part import check_declared
from unskew.protocol.work import Work
from unskew.wire.contract import Contract, specs_of
from unskew.wire.message import Received

CLIENT = 0  # any client's message has the same form


class DryRun:
    """The client of a method with a number of rows, of which only shapes count."""

    def __init__(self, method: Method, model: Model, task: Task, round: int, received: Received, rows: int) -> None:
        self._method, self._model, self._task = method, model, task
        self._round, self._received, self._rows = round, received, rows

    def training(self, sealed: bool = True) -> Contract:
        """What training sends; a stand-in's message does not travel and is not sealed."""

        def sent(context: ClientContext) -> Message:
            received, mine, facts = self._start(context)
            method, _ = context.at_round_on_device(self._round)
            received = with_private(received, mine)
            like = facts.counts
            done = WorkDone(like.new_zeros(()), like.new_zeros(()))
            lr = like.new_zeros(())
            message, kept = finish(method, self._model, received, received.model, mine, facts, done, lr)
            if sealed and method.seals:
                draws = seal_draws(context, self._round, CLIENT)
                message, _ = seal_one(context, self._round, received, message, kept, draws)
            return message

        return self._contract(sent, "up" if not (sealed and self._method.seals) else "up or seal", "sends")

    def sharing(self, part: str) -> Contract:
        """What one part's exchange sends."""

        def sent(context: ClientContext) -> Message:
            received, mine, facts = self._start(context)
            draws = share_draws(context, part, self._round, CLIENT)
            index = context.client_rows.index[CLIENT].to(context.device)
            state = with_private(received, mine).model
            found, _ = share_one(context, part, self._round, state, mine.get(part, {}), draws, facts, index)
            return {part: found} if found else {}

        return self._contract(sent, "share", "shares")

    def _contract(self, sent: Callable[[ClientContext], Message], hook: str, declares: str) -> Contract:
        message = sent(self._context())
        declared = {part.name: getattr(part, declares) for part in self._method.parts}
        for part, artefacts in message.items():
            check_declared(part, declared[part], artefacts, hook)
        ordered = {
            part: {name: specs_of(message[part][name]) for name in names if name in message[part]}
            for part, names in declared.items()
            if message.get(part)
        }
        return Contract(ordered, declared)

    def _start(self, context: ClientContext) -> tuple[Received, Tree, ClientFacts]:
        """What a client begins with: the received model, its first state, and facts."""
        zeros = torch.zeros(self._task.classes, dtype=context.dtype)
        facts = ClientFacts(torch.tensor(float(self._rows), dtype=context.dtype), zeros)
        mine = context.first_state(CLIENT, lambda: facts, self._rows)
        mine, received = tree_map(_zeros_like, (mine, tuple(self._received)))
        method, _ = context.at_round_on_device(self._round)
        return Received(*received), mine, with_label_stats(method, facts)

    def _context(self) -> ClientContext:
        """One client whose rows have the right shape."""
        n, task = self._rows, self._task
        dtype = next((t.dtype for t in self._model.initial.values() if t.is_floating_point()), torch.float32)
        x = torch.zeros(1, *task.shape, dtype=dtype).expand(n, *task.shape)
        y = torch.zeros(n, dtype=torch.int64)
        rows = ClientRows(x, y, {CLIENT: torch.arange(n)}, task.classes, lambda x: x, dtype)
        return _OneRound(self._method, self._model, task, Plan(0), rows, torch.device("cpu"), dtype)


class _OneRound(ClientContext):
    """The method is that of the round already."""

    def at_round(self, round: int) -> tuple[Method, Work]:
        return self.method, self.task.work_at(max(round, 1))


def _zeros_like(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(t, device="cpu")
