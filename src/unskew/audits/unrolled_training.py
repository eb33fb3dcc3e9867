"""The client's training on guessed rows, as a function that the attacker can differentiate through.

    (1)  w_0 = w^t,  w_{s+1} = step(w_s, grad L(w_s; rows of step s))     the method's own loss, the client's optimiser
    (2)  O = ( up(w_S) - up(w^t) ) / u,   u = up(w^t - eta a 1) - up(w^t)

`up` is the message that the client would send for a model, u is how it changes for a gradient of ones, eta is the
learning rate and a the number of effective steps. So (2) is the mean gradient of the client's steps for every form of
update: weights, FedNova's direction, SCAFFOLD's control variate. For one step of plain SGD it is update / (-eta).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unskew.audits.differentiable_optimiser import functional_optimiser_step
from unskew.base.tree import State, Tree
from unskew.client.round import StepInputs, WorkDone, finish, step_loss, with_private
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method
from unskew.protocol.work import Work
from unskew.wire.requests_and_replies import Received


class ClientSecrets(NamedTuple):
    """One client's round without its rows, as tensors that can be stacked over observations.

    steps: the inputs of each step, with indices `row` [b] into the guessed rows in place of the rows themselves.
    """

    rows: Tensor
    steps: list[StepInputs]
    client_state: Tree


@dataclass(frozen=True)
class UnrolledClient:
    """The attacker's model of a client: everything that is the same for all observations of a round."""

    method: Method  # float fields as tensors
    model: Model
    work: Work
    received: Received
    part: str
    artefact: str
    classes: int

    def gradient_of(self, value: State, secrets: ClientSecrets) -> State:
        """(2) of a recorded message; class counts, which are unknown, are set to 0 in `up`."""
        return self._as_gradient(value, secrets, secrets.rows.new_zeros(self.classes))

    def __call__(self, secrets: ClientSecrets, x: Tensor, y: Tensor) -> State:
        """(2) of the client's round on rows x [n, ...] with labels y [n] or [n, classes]."""
        classes = torch.arange(self.classes, device=y.device)
        counts = (y if y.ndim > 1 else y[:, None] == classes).to(x.dtype).sum(0)
        facts = ClientFacts(secrets.rows, counts)
        received = with_private(self.received, secrets.client_state)
        leaves = {name: received.model[name] for name in self.model.parameters}
        buffers = {name: received.model[name] for name in self.model.buffers}
        slots: Tree = {}

        def loss(leaves: State, buffers: State, inputs: StepInputs) -> Any:
            return step_loss(self.method, self.model, leaves, buffers, received, secrets.client_state, facts, inputs)

        for step in secrets.steps:  # (1)
            rows = step.batch["row"]
            columns = {name: column for name, column in step.batch.items() if name != "row"}
            inputs = step._replace(batch=columns | {"x": _gather_rows(x, rows), "y": _gather_rows(y, rows)})
            # Running statistics are written in place, so under vmap they need the batch axes of the values written.
            buffers = {name: _with_batch_axes(b, x) for name, b in buffers.items()}
            grads, (buffers, _) = torch.func.grad(loss, has_aux=True)(leaves, buffers, inputs)
            leaves, slots = functional_optimiser_step(self.work, leaves, grads, slots)
        sent = self._message(leaves | buffers, secrets, facts)
        return self._as_gradient(sent, secrets, counts)

    def _as_gradient(self, sent: State, secrets: ClientSecrets, counts: Tensor) -> State:
        """(2) for those trained tensors that are sent."""
        start, facts = with_private(self.received, secrets.client_state).model, ClientFacts(secrets.rows, counts)
        total_lr = self.work.lr * self.work.effective_steps(len(secrets.steps))
        shifted = start | {name: start[name] - total_lr for name in self.model.shared}
        base, moved = (self._message(state, secrets, facts) for state in (start, shifted))
        names = [name for name in self.model.shared if name in sent]
        return {name: (sent[name] - base[name]) / (moved[name] - base[name]).mean() for name in names}

    def _message(self, final: State, secrets: ClientSecrets, facts: ClientFacts) -> State:
        """The artefact that the client sends after training to `final`."""
        steps = len(secrets.steps)
        like = secrets.rows
        # Filled on the device, because a copy from the host cannot be captured in a CUDA graph.
        done = WorkDone(like.new_full((), steps), like.new_full((), self.work.effective_steps(steps)))
        lr = like.new_full((), self.work.lr)
        message, _ = finish(self.method, self.model, self.received, final, secrets.client_state, facts, done, lr)
        return message[self.part][self.artefact]  # type: ignore[return-value]

    def as_one_gradient(self) -> UnrolledClient:
        """The same client modelled by a single step of plain SGD: the attacker divides the update by -lr."""
        one_step = Work(batch=self.work.batch, lr=self.work.lr, steps=1)
        return replace(self, work=one_step)


def _gather_rows(x: Tensor, rows: Tensor) -> Tensor:
    """x[rows] by `gather`, because the backward pass of indexing sorts on a GPU."""
    flat = x.reshape(len(x), -1)
    return flat.gather(0, rows[:, None].expand(-1, flat.shape[1])).reshape(len(rows), *x.shape[1:])


def _with_batch_axes(buffer: Tensor, x: Tensor) -> Tensor:
    """The same values, with the vmap axes of x."""
    if not buffer.is_floating_point():
        return buffer
    return buffer + 0 * x.detach().flatten()[0]


def all_rows_at_once(secrets: ClientSecrets, n: int) -> ClientSecrets:
    """One step on all rows, as assumed by an attacker that does not know the local steps."""
    first = secrets.steps[0]
    rows = torch.arange(n, device=first.batch["row"].device)
    batch = {"row": rows, "w": torch.ones_like(rows, dtype=secrets.rows.dtype)}
    return secrets._replace(steps=[first._replace(batch=batch)])
