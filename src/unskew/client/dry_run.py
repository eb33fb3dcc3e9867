"""Derives the contract of a client's replies by a dry run on tensors of zeros.

`finish`, `share` and `seal` run once on zeros of the right shapes. The meta device would do for most hooks, but
importing its rules takes seconds, and a hook that reads a number (`.item()`) cannot run on it.
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
from unskew.wire.requests_and_replies import Received

CLIENT = 0  # arbitrary: the contract is the same for every client


class DryRun:
    """A client with a given number of rows, all zeros, from which contracts are derived."""

    def __init__(self, method: Method, model: Model, task: Task, round: int, received: Received, rows: int) -> None:
        self._method, self._model, self._task = method, model, task
        self._round, self._received, self._rows = round, received, rows

    def training(self, sealed: bool = True) -> Contract:
        """Contract of the message after training; a stand-in's message is not sent and so not sealed."""

        def trained_message(context: ClientContext) -> Message:
            received, client_state, facts = self._zero_inputs(context)
            method, _ = context.at_round_on_device(self._round)
            received = with_private(received, client_state)
            like = facts.counts
            done = WorkDone(like.new_zeros(()), like.new_zeros(()))
            lr = like.new_zeros(())
            message, new_state = finish(method, self._model, received, received.model, client_state, facts, done, lr)
            if sealed and method.sealing_parts:
                draws = seal_draws(context, self._round, CLIENT)
                message, _ = seal_one(context, self._round, received, message, new_state, draws)
            return message

        return self._contract(
            trained_message, "up" if not (sealed and self._method.sealing_parts) else "up or seal", "sends"
        )

    def sharing(self, part: str) -> Contract:
        """Contract of the message that one part's exchange sends."""

        def shared_message(context: ClientContext) -> Message:
            received, client_state, facts = self._zero_inputs(context)
            draws = share_draws(context, part, self._round, CLIENT)
            index = context.client_rows.index[CLIENT].to(context.device)
            state = with_private(received, client_state).model
            shared, _ = share_one(context, part, self._round, state, client_state.get(part, {}), draws, facts, index)
            return {part: shared} if shared else {}

        return self._contract(shared_message, "share", "shares")

    def _contract(self, send: Callable[[ClientContext], Message], hook: str, declares: str) -> Contract:
        message = send(self._context())
        declared = {part.name: getattr(part, declares) for part in self._method.parts}
        for part, artefacts in message.items():
            check_declared(part, declared[part], artefacts, hook)
        ordered = {
            part: {name: specs_of(message[part][name]) for name in names if name in message[part]}
            for part, names in declared.items()
            if message.get(part)
        }
        return Contract(ordered, declared)

    def _zero_inputs(self, context: ClientContext) -> tuple[Received, Tree, ClientFacts]:
        """The received model, the client's state and its facts, all zeros except the number of rows."""
        zeros = torch.zeros(self._task.classes, dtype=context.dtype)
        facts = ClientFacts(torch.tensor(float(self._rows), dtype=context.dtype), zeros)
        client_state = context.initial_state(CLIENT, lambda: facts, self._rows)
        client_state, received = tree_map(_zeros_like, (client_state, tuple(self._received)))
        method, _ = context.at_round_on_device(self._round)
        return Received(*received), client_state, with_label_stats(method, facts)

    def _context(self) -> ClientContext:
        """A context with one client, whose rows are zeros of the right shape."""
        n, task = self._rows, self._task
        dtype = next((t.dtype for t in self._model.initial.values() if t.is_floating_point()), torch.float32)
        x = torch.zeros(1, *task.shape, dtype=dtype).expand(n, *task.shape)
        y = torch.zeros(n, dtype=torch.int64)
        rows = ClientRows(x, y, {CLIENT: torch.arange(n)}, task.classes, lambda x: x, dtype)
        return _OneRoundContext(self._method, self._model, task, Plan(0), rows, torch.device("cpu"), dtype)


class _OneRoundContext(ClientContext):
    """A context whose method is already that of the round, after every part's `at_round`."""

    def at_round(self, round: int) -> tuple[Method, Work]:
        return self.method, self.task.work_at(max(round, 1))


def _zeros_like(t: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(t, device="cpu")
