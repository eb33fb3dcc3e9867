"""The client's own function once more, on rows that an attacker guesses, so that he can differentiate through it.

    (1)  w_0 = w^t,  w_{s+1} = step(w_s, grad L(w_s; rows of step s))     the method's own loss, the client's optimiser
    (2)  O = ( up(w_S) - up(w^t) ) / u,   u = up(w^t - eta a 1) - up(w^t)

`up` is what the client sends, and u what a gradient of ones would look like in it, for eta the learning rate and a the
effective steps. So (2) is the mean gradient of the client's steps, whatever the method makes of its update: weights,
FedNova's direction, SCAFFOLD's variate. For one step of plain SGD it is the gradient itself, update / (-eta).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unskew.audit.differentiable_sgd import move
from unskew.base.tree import State, Tree
from unskew.client.round import StepInputs, WorkDone, finish, step_loss, with_private
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method
from unskew.protocol.work import Work
from unskew.wire.message import Received


class ClientSecrets(NamedTuple):
    """One client's round apart from its rows, as tensors that can be stacked over observations.

    moments: each step's inputs, with `row` [b] in place of the rows: which of the guessed rows stand where.
    """

    rows: Tensor
    moments: list[StepInputs]
    client_state: Tree


@dataclass(frozen=True)
class UnrolledClient:
    """What the attacker runs: everything that is the same for all observations of a round."""

    method: Method  # float fields as tensors
    model: Model
    work: Work
    received: Received
    part: str
    artefact: str
    classes: int

    def observed(self, value: State, hidden: ClientSecrets) -> State:
        """(2) of a message that was recorded, up to what `up` says about a model that has not moved."""
        return self._scaled(value, hidden, hidden.rows.new_zeros(self.classes))

    def __call__(self, hidden: ClientSecrets, x: Tensor, y: Tensor) -> State:
        """(2) of the client's round on rows x [n, ...] with labels y [n] or [n, classes]."""
        classes = torch.arange(self.classes, device=y.device)
        counts = (y if y.ndim > 1 else y[:, None] == classes).to(x.dtype).sum(0)
        facts = ClientFacts(hidden.rows, counts)
        received = with_private(self.received, hidden.client_state)
        leaves = {name: received.model[name] for name in self.model.parameters}
        buffers = {name: received.model[name] for name in self.model.buffers}
        slots: Tree = {}

        def loss(leaves: State, buffers: State, now: StepInputs) -> Any:
            return step_loss(self.method, self.model, leaves, buffers, received, hidden.client_state, facts, now)

        for moment in hidden.moments:  # (1)
            rows = moment.batch["row"]
            more = {name: column for name, column in moment.batch.items() if name != "row"}
            now = moment._replace(batch=more | {"x": _taken(x, rows), "y": _taken(y, rows)})
            # Running statistics are written in place, which needs as many axes as what is written.
            buffers = {name: _as_wide(b, x) for name, b in buffers.items()}
            grads, (buffers, _) = torch.func.grad(loss, has_aux=True)(leaves, buffers, now)
            leaves, slots = move(self.work, leaves, grads, slots)
        sent = self._up(leaves | buffers, hidden, facts)
        return self._scaled(sent, hidden, counts)

    def _scaled(self, sent: State, hidden: ClientSecrets, counts: Tensor) -> State:
        """(2), of the trained tensors that are sent."""
        start, facts = with_private(self.received, hidden.client_state).model, ClientFacts(hidden.rows, counts)
        way = self.work.lr * self.work.effective_steps(len(hidden.moments))
        shifted = start | {name: start[name] - way for name in self.model.shared}
        still, moved = (self._up(state, hidden, facts) for state in (start, shifted))
        names = [name for name in self.model.shared if name in sent]
        return {name: (sent[name] - still[name]) / (moved[name] - still[name]).mean() for name in names}

    def _up(self, final: State, hidden: ClientSecrets, facts: ClientFacts) -> State:
        steps = len(hidden.moments)
        like = hidden.rows
        # Filled on the device: a number that is copied there could not be recorded as part of a CUDA graph.
        ending = WorkDone(like.new_full((), steps), like.new_full((), self.work.effective_steps(steps)))
        lr = like.new_full((), self.work.lr)
        message, _ = finish(self.method, self.model, self.received, final, hidden.client_state, facts, ending, lr)
        return message[self.part][self.artefact]  # type: ignore[return-value]

    def as_one_gradient(self) -> UnrolledClient:
        """The attacker who divides the update by -lr, whatever the client did."""
        plain = Work(batch=self.work.batch, lr=self.work.lr, steps=1)
        return replace(self, work=plain)


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows], by a gather: the way back through indexing would sort on a GPU."""
    flat = x.reshape(len(x), -1)
    return flat.gather(0, rows[:, None].expand(-1, flat.shape[1])).reshape(len(rows), *x.shape[1:])


def _as_wide(buffer: Tensor, x: Tensor) -> Tensor:
    if not buffer.is_floating_point():
        return buffer
    return buffer + 0 * x.detach().flatten()[0]


def all_rows_at_once(hidden: ClientSecrets, n: int) -> ClientSecrets:
    """One step on all rows: what an attacker assumes who does not know the steps."""
    first = hidden.moments[0]
    rows = torch.arange(n, device=first.batch["row"].device)
    batch = {"row": rows, "w": torch.ones_like(rows, dtype=hidden.rows.dtype)}
    return hidden._replace(moments=[first._replace(batch=batch)])
