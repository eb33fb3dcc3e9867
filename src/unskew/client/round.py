"""The client as pure functions: one step's loss, the end of a round, an exchange, and the whole round for one client.

    client_round(method, model, received, mine, feed, after) -> (message, shared, mine, loss terms)

Everything random is in `feed`, state comes in and goes out, and `received` is the same for every client. The stacked
engine maps `step_loss`, `finish` and `Client` over a cohort; `client_round` is the same thing for one client. The plain
engine has a loop of its own around them, with `torch.optim`, which the others are compared with.
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
from unskew.protocol.work import Work, clipped
from unskew.wire.message import Received


class StepInputs(NamedTuple):
    """Inputs of one step: the batch's columns, each part's draws, each stream's batch (x, y), and the clock."""

    batch: dict[str, Tensor]
    draws: dict[str, State]
    streams: dict[str, dict[str, tuple[Tensor, Tensor]]]
    clock: tuple[Tensor, Tensor, Tensor]


class WorkDone(NamedTuple):
    """What `finish` needs about the work done, as 0-dim tensors."""

    steps: Tensor
    effective_steps: Tensor


# Exchanges after training: from the final local model and the client's state to what is sent and the new state.
After = Callable[[State, Tree], tuple[Message, Tree]]


class Feed(Protocol):
    """Where one client's steps come from."""

    steps: int
    work: Work
    facts: ClientFacts

    def at(self, step: int) -> StepInputs: ...


PRIVATE = "model"  # where a client keeps the tensors of the model that never leave it


def with_private(received: Received, mine: Tree) -> Received:
    """The received model with the client's own tensors in it."""
    return received._replace(model=received.model | mine[PRIVATE]) if PRIVATE in mine and received.model else received


def for_steps(method: Method, received: Received) -> Received:
    """Without broadcast rows, which a step sees as batches of a stream: their number is no part of a step's shape."""
    rows = {part.name: {n for n, a in part.broadcasts.items() if a.reduce == "rows"} for part in method.parts}
    parts = {
        part: {name: value for name, value in sent.items() if name not in rows.get(part, ())}
        for part, sent in received.parts.items()
    }
    return received._replace(parts=parts)


def with_label_stats(method: Method, facts: ClientFacts) -> ClientFacts:
    """With what the parts' losses need of the label counts, so that no step works it out again."""
    with torch.no_grad():
        stats = {part.name: part.label_stats(facts.counts) for part in method.parts}
    return facts._replace(label_stats={name: each for name, each in stats.items() if each})


def step_loss(
    method: Method,
    model: Model,
    leaves: State,
    buffers: State,
    received: Received,
    mine: Tree,
    facts: ClientFacts,
    now: StepInputs,
) -> tuple[Tensor, tuple[State, dict[str, Tensor]]]:
    """Loss of one step, with the new buffers and every part's term: pure, so that it can be mapped over clients."""
    received = with_private(received, mine)
    batch = prepare_batch(method, _batch(now.batch), received, train=True)
    clock = Clock(*now.clock)
    forward = ForwardPass(model, leaves, buffers, batch, clock.seed)
    view = View(forward, received.model, {}, {}, {}, facts.counts, clock, {}, _label_stats=facts.label_stats)
    total, terms = torch.zeros((), device=batch.x.device, dtype=batch.w.dtype), {}
    for part in method.parts:
        streams = {
            name: Batch(x, y, torch.ones_like(batch.w)) for name, (x, y) in now.streams.get(part.name, {}).items()
        }
        seen = view.of(
            received.parts.get(part.name, {}), mine.get(part.name, {}), now.draws.get(part.name, {}), streams
        )
        found = part.loss(seen)
        if found is not None:
            term, numbers = found if isinstance(found, tuple) else (found, {})
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
    mine: Tree,
    facts: ClientFacts,
    ending: WorkDone,
    lr: Tensor,
) -> tuple[Message, Tree]:
    """Every part's `up`: what is sent and what is kept. Pure, so that it can be mapped over clients."""
    message: Message = {}
    kept: Tree = {PRIVATE: {name: final[name] for name in model.private}} if model.private else {}
    public = {name: t for name, t in final.items() if name not in model.private}
    for part in method.parts:
        end = End(
            received.model,
            public,
            mine.get(part.name, {}),
            received.parts.get(part.name, {}),
            facts,
            ending.steps,
            ending.effective_steps,
            lr,
            model.shared,
        )
        sent, state = part.up(end)
        if sent:
            message[part.name] = sent
        if state:
            kept[part.name] = state
    return message, kept


def descend_step(loss: Tensor, optimiser: Optimiser, work: Work, stacked: bool) -> None:
    """One backward and one optimiser step on the leaves, in place."""
    if work.scope == "step":
        for slot in (t for slots in optimiser.state.values() for t in slots.values() if isinstance(t, Tensor)):
            slot.zero_()  # the same as forgetting it
    grads = optimiser.gradients(loss)
    optimiser.step(grads if work.clip is None else clipped(grads, work.clip, stacked))


def begin(model: Model, state: State) -> tuple[State, State]:
    """Fresh leaves and buffers from a model state."""
    leaves = {name: state[name].detach().clone().requires_grad_() for name in model.parameters}
    return leaves, {name: state[name].detach().clone() for name in model.buffers}


def client_round(
    method: Method, model: Model, received: Received, mine: Tree, feed: Feed, after: After
) -> tuple[Message, Message, Tree, dict[str, Tensor]]:
    """One client's round: train on the feed, exchanges after training, then `up`.

    Returns the message, what the exchanges sent, the new state, and the mean of each loss term and number beside it.
    """
    work, facts = feed.work, feed.facts
    received = with_private(received, mine)
    leaves, buffers = begin(model, received.model)
    optimiser = work.make(leaves.values())
    terms: dict[str, Tensor] = {}
    seen_by_steps = for_steps(method, received)
    for step in range(feed.steps):
        now = feed.at(step)
        loss, (buffers, seen) = step_loss(method, model, leaves, buffers, seen_by_steps, mine, facts, now)
        descend_step(loss, optimiser, work, stacked=False)
        terms = {name: terms.get(name, 0) + term for name, term in seen.items()}
    final = {name: leaf.detach() for name, leaf in leaves.items()} | buffers
    like = facts.counts
    ending = WorkDone(like.new_tensor(float(feed.steps)), like.new_tensor(work.effective_steps(feed.steps)))
    shared, mine = after(final, mine)
    message, kept = finish(method, model, received, final, mine, facts, ending, like.new_tensor(work.lr))
    return message, shared, kept, {name: total / feed.steps for name, total in terms.items()}
