"""A client's local training as pure functions: one step's loss, the end of a round, and a full round of one client.

    client_round(method, model, received, client_state, feed, after) -> (message, shared, client_state, loss terms)

All randomness is in `feed`, the client's state is an argument and a result, and `received` is the same for every
client. The stacked engine maps `step_loss`, `finish` and `share` over a cohort; `client_round` does the same for one
client. The plain engine has its own loop around these functions with `torch.optim`, as a reference for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from unskew.base.tree import Message, State, Tree
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts, End
from unskew.protocol.method import Method
from unskew.protocol.optimiser import Optimiser
from unskew.protocol.step_view import Batch, Clock, ForwardPass, View
from unskew.protocol.work import Work, clip_gradients
from unskew.wire.requests_and_replies import Received


class StepInputs(NamedTuple):
    """Inputs of one step: the batch's columns, each part's draws, each stream's batch (x, y), and `Clock` fields."""

    batch: dict[str, Tensor]
    draws: dict[str, State]
    streams: dict[str, dict[str, tuple[Tensor, Tensor]]]
    clock: tuple[Tensor, Tensor, Tensor]


class WorkDone(NamedTuple):
    """How many steps a client did, as 0-dim tensors for `finish`."""

    steps: Tensor
    effective_steps: Tensor


# Runs the exchanges after training: (final local model, client state) -> (shared artefacts, new client state).
ShareAfterTraining = Callable[[State, Tree], tuple[Message, Tree]]


class Feed(Protocol):
    """The inputs of one client's steps."""

    steps: int
    work: Work
    facts: ClientFacts

    def at(self, step: int) -> StepInputs: ...


PRIVATE = "model"  # key of the client's state for the model's private tensors, which are never sent


def with_private(received: Received, client_state: Tree) -> Received:
    """The received model with the client's private tensors filled in."""
    if PRIVATE in client_state and received.model:
        return received._replace(model=received.model | client_state[PRIVATE])
    return received


def without_row_broadcasts(method: Method, received: Received) -> Received:
    """`received` without broadcast rows: steps get those as stream batches, so no shape depends on their number."""
    rows = {part.name: {n for n, a in part.broadcasts.items() if a.reduce == "rows"} for part in method.parts}
    parts = {
        part: {name: value for name, value in sent.items() if name not in rows.get(part, ())}
        for part, sent in received.parts.items()
    }
    return received._replace(parts=parts)


def with_label_stats(method: Method, facts: ClientFacts) -> ClientFacts:
    """The facts with every part's `label_stats`, so that they are not computed again in every step."""
    with torch.no_grad():
        stats = {part.name: part.label_stats(facts.counts) for part in method.parts}
    return facts._replace(label_stats={name: each for name, each in stats.items() if each})


def step_loss(
    method: Method,
    model: Model,
    leaves: State,
    buffers: State,
    received: Received,
    client_state: Tree,
    facts: ClientFacts,
    inputs: StepInputs,
) -> tuple[Tensor, tuple[State, dict[str, Tensor]]]:
    """Loss of one step, the new buffers, and every part's term. Pure, so that vmap can map it over clients."""
    received = with_private(received, client_state)
    batch = prepare_batch(method, _batch(inputs.batch), received, train=True)
    clock = Clock(*inputs.clock)
    forward = ForwardPass(model, leaves, buffers, batch, clock.seed)
    view = View(forward, received.model, {}, {}, {}, facts.counts, clock, {}, _label_stats=facts.label_stats)
    total, terms = torch.zeros((), device=batch.x.device, dtype=batch.w.dtype), {}
    for part in method.parts:
        streams = {
            name: Batch(x, y, torch.ones_like(batch.w)) for name, (x, y) in inputs.streams.get(part.name, {}).items()
        }
        part_view = view.for_part(
            received.parts.get(part.name, {}), client_state.get(part.name, {}), inputs.draws.get(part.name, {}), streams
        )
        result = part.loss(part_view)
        if result is not None:
            term, numbers = result if isinstance(result, tuple) else (result, {})
            total, terms[part.name] = total + term, term.detach()
            terms |= {f"{part.name} {name}": number.detach() for name, number in numbers.items()}
    return total, (forward.buffers, terms)


def prepare_batch(method: Method, batch: Batch, received: Received, train: bool) -> Batch:
    """Every part's `batch` hook, in list order."""
    with torch.no_grad():
        for part in method.parts:
            batch = part.batch(batch, received.parts.get(part.name, {}), train)
    return batch


def _batch(columns: dict[str, Tensor]) -> Batch:
    more = {name: column for name, column in columns.items() if name not in ("x", "y", "w")}
    return Batch(columns["x"], columns["y"], columns["w"], more)


def finish(
    method: Method,
    model: Model,
    received: Received,
    final: State,
    client_state: Tree,
    facts: ClientFacts,
    work_done: WorkDone,
    lr: Tensor,
) -> tuple[Message, Tree]:
    """Every part's `up`: the message and the client's new state. Pure, so that vmap can map it over clients."""
    message: Message = {}
    new_state: Tree = {PRIVATE: {name: final[name] for name in model.private}} if model.private else {}
    public = {name: t for name, t in final.items() if name not in model.private}
    for part in method.parts:
        end = End(
            received.model,
            public,
            client_state.get(part.name, {}),
            received.parts.get(part.name, {}),
            facts,
            work_done.steps,
            work_done.effective_steps,
            lr,
            model.shared,
        )
        sent, state = part.up(end)
        if sent:
            message[part.name] = sent
        if state:
            new_state[part.name] = state
    return message, new_state


def optimiser_step(loss: Tensor, optimiser: Optimiser, work: Work, stacked: bool) -> None:
    """One backward pass and one optimiser step, which updates the leaves in place."""
    if work.scope == "step":
        for slot in (t for slots in optimiser.state.values() for t in slots.values() if isinstance(t, Tensor)):
            slot.zero_()  # equivalent to a fresh optimiser
    grads = optimiser.gradients(loss)
    optimiser.step(grads if work.clip is None else clip_gradients(grads, work.clip, stacked))


def leaves_and_buffers(model: Model, state: State) -> tuple[State, State]:
    """Copies of a model's tensors: parameters that require gradients, and buffers."""
    leaves = {name: state[name].detach().clone().requires_grad_() for name in model.parameters}
    return leaves, {name: state[name].detach().clone() for name in model.buffers}


def client_round(
    method: Method, model: Model, received: Received, client_state: Tree, feed: Feed, after: ShareAfterTraining
) -> tuple[Message, Message, Tree, dict[str, Tensor]]:
    """One client's round: train on the feed, exchanges after training, then `up`.

    Returns the message, the artefacts that exchanges sent, the new state, and the mean of each loss term and logged
    number.
    """
    work, facts = feed.work, feed.facts
    received = with_private(received, client_state)
    leaves, buffers = leaves_and_buffers(model, received.model)
    optimiser = work.make_optimiser(leaves.values())
    terms: dict[str, Tensor] = {}
    received_without_rows = without_row_broadcasts(method, received)
    for step in range(feed.steps):
        inputs = feed.at(step)
        loss, (buffers, step_terms) = step_loss(
            method, model, leaves, buffers, received_without_rows, client_state, facts, inputs
        )
        optimiser_step(loss, optimiser, work, stacked=False)
        terms = {name: terms.get(name, 0) + term for name, term in step_terms.items()}
    final = {name: leaf.detach() for name, leaf in leaves.items()} | buffers
    like = facts.counts
    work_done = WorkDone(like.new_tensor(float(feed.steps)), like.new_tensor(work.effective_steps(feed.steps)))
    shared, client_state = after(final, client_state)
    message, new_state = finish(
        method, model, received, final, client_state, facts, work_done, like.new_tensor(work.lr)
    )
    return message, shared, new_state, {name: total / feed.steps for name, total in terms.items()}
