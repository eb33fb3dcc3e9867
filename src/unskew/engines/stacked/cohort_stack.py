"""A cohort's training in memory that stays where it is: a step finds its inputs and leaves its results in place.

So a step can be recorded once as a CUDA graph and played again in every later step and round: without it, a small
model's step waits for the launches of its hundreds of kernels. With the layers of `layers`, `lmd-shards-10` fell from
406 to 145 ms a round on an H200 and `flea-mobilenet` from 9.6 to 2.0 s (docs/speed.md has every step).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from unskew.base.tree import State, Tree, tree_map
from unskew.base.vmap import vmap
from unskew.client.feed import BatchFeed, shapes
from unskew.client.round import PRIVATE, StepInputs, descend_step, step_loss
from unskew.engines.engine import EngineContext
from unskew.engines.stacked import kernels
from unskew.engines.stacked.cuda_graph import CudaGraph, new_pool
from unskew.engines.stacked.lowrank_grad import LowRankCapture
from unskew.engines.stacked.step_inputs import StepInputBuffer
from unskew.engines.stacked.widths import widths
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method
from unskew.protocol.optimiser import PLAIN, GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.wire.message import Received

AHEAD = 256 * 2**20  # bytes of batches made at once
Given = tuple[Method, Received, Tree, ClientFacts]


class CohortStack:
    """Trains cohorts of up to `capacity` clients whose inputs have the same shapes."""

    def __init__(self, context: EngineContext, work: Work, given: Given, feed: BatchFeed) -> None:
        self.context, self.capacity, self._shapes = context, len(feed.clients), feed.shapes
        method, received, mine, facts = given
        first = _as_read(feed.between(0, 1, self.capacity), context.model)
        self.ahead = max(min(AHEAD // max(_bytes(first), 1), 64), 1)
        self.method, self.received, self.client_state, self.facts = (
            _floats_cloned(method), *(tree_map(torch.clone, tree) for tree in (received, mine, facts)),
        )  # fmt: skip
        self.batches = StepInputBuffer(first, self.ahead, context.device)
        model = context.model
        self.state: State = {k: t.new_empty(self.capacity, *t.shape) for k, t in received.model.items()}
        self.leaves = {k: self.state[k] for k in model.parameters}
        self.buffers = {k: self.state[k] for k in model.buffers}
        self.slots = {k: optimiser_slots(work, t) for k, t in self.leaves.items()}
        self.terms: State = {}
        self.lr = torch.zeros((), device=context.device)
        self._width_steps: dict[int, _WidthStep] = {}
        self.pool = new_pool(context.device)  # of all widths, which train one after another
        self._begin = CudaGraph(self._start, context.device)
        self.work = work  # its learning rate is that of the round
        self._staged: BatchFeed | None = None  # whose first batches are in place

    def takes(self, feed: BatchFeed) -> bool:
        """Whether a cohort's batches fit into the places of this one's."""
        return feed.shapes == self._shapes and len(feed.clients) <= self.capacity

    def stage(self, feed: BatchFeed) -> None:
        """Put the first batches of the cohort that comes into place, behind the steps that are still under way.

        `train` would do the same, but while the device waits: 0.4 of the 1.5 ms before the first step of `pfl-cifar`.
        """
        self._fill(feed, 0, max(feed.steps), len(feed.clients))
        self._staged = feed

    def train(self, work: Work, given: Given, feed: BatchFeed) -> tuple[State, State, int]:
        """All steps of a cohort: final states [m, ...], summed loss terms [m], and the clients' steps computed."""
        there, self._staged = feed is self._staged, None
        self._load(work, given)
        plan, kept = widths(feed.steps), list[tuple[slice, list[Tensor]]]()
        for step, width in enumerate(plan):
            if step % self.ahead == 0 and not (step == 0 and there):
                self._fill(feed, step, len(plan), width)
            self._width_step(width).step()
            over = slice(sum(s > step + 1 for s in feed.steps), sum(s > step for s in feed.steps))
            still = plan[step + 1] if step + 1 < len(plan) else 0
            if over.start < over.stop and still > over.start:  # ended, but trained on with the rest: taken out now
                kept.append((over, [t[over].clone() for t in tree_leaves((self.state, self.terms))]))
        for rows, tensors in kept:
            for live, saved in zip(tree_leaves((self.state, self.terms)), tensors):
                live[rows] = saved
        m = len(feed.clients)
        final, terms = tree_map(lambda t: t[:m].clone(), (self.state, self.terms))
        return final, terms, sum(plan)

    def release(self) -> None:
        """Let go of memory and recordings now: lanes and their steps know each other, so only the collector would."""
        for lane in self._width_steps.values():
            del lane.step
        self._width_steps.clear()
        del self._begin

    def _fill(self, feed: BatchFeed, first: int, end: int, width: int) -> None:
        """Batches from step `first` on into their places."""
        put(self.batches.places, feed.between(first, min(first + self.ahead, end), width))
        self.batches.rewind()

    def _load(self, work: Work, given: Given) -> None:
        """This round's inputs into their places."""
        self.work = work
        method, received, mine, facts = given
        for mine_now, new in zip(_float_fields(self.method), _float_fields(method)):
            mine_now.copy_(new)
        put((self.received, self.client_state, self.facts), (received, mine, facts))
        self._begin()
        self.lr.fill_(work.lr)
        for lane in self._width_steps.values() if not self.lr.is_cuda else ():  # there the optimiser reads the tensor
            lane.optimiser.lr = work.lr

    def _start(self) -> None:
        """Every client starts from the received model and its own tensors, the optimiser from nothing.

        Recorded like a step: its twenty launches took the host 0.3 ms before the first step of a round.
        """
        for name, tensor in self.client_state.get(PRIVATE, {}).items():
            self.state[name].copy_(tensor)
        shared = [name for name in self.state if name not in self.client_state.get(PRIVATE, {})]
        kernels.broadcast_to_clients(
            [self.state[name] for name in shared], [self.received.model[name] for name in shared]
        )
        for tensor in tree_leaves((self.slots, self.terms)):
            tensor.zero_()

    def _width_step(self, width: int) -> _WidthStep:
        if width not in self._width_steps:
            self._width_steps[width] = _WidthStep(self, width)
        return self._width_steps[width]


class _WidthStep:
    """The first `width` clients of a stack."""

    def __init__(self, stack: CohortStack, width: int) -> None:
        self.stack, self.width, self.work = stack, width, stack.work
        self.leaves = {k: t[:width].detach().requires_grad_() for k, t in stack.leaves.items()}
        self.buffers, self.client_state, self.facts = (
            _head(t, width) for t in (stack.buffers, stack.client_state, stack.facts)
        )
        self.slots = [_head(stack.slots[k], width) for k in self.leaves]
        leaves, sgd = list(self.leaves.values()), kernels.sgd_kernel(stack.context.device)
        plain = self.work.optimiser == "sgd" and self.work.clip is None
        self.factors = LowRankCapture(leaves if sgd and plain else [])
        descent = GradientRule(self.factors.gradients, sgd) if sgd else PLAIN
        self.optimiser = self.work.make(leaves, self.slots, stack.lr, descent)
        model, method, received = stack.context.model, stack.method, stack.received
        self.each = vmap(lambda p, b, k, f, n: step_loss(method, model, p, b, received, k, f, n))
        self.step: Callable[[], None] = CudaGraph(self._step, stack.context.device, stack.pool)

    def _step(self) -> None:
        stack, width = self.stack, self.width
        now = tree_map(lambda t: t[:width], stack.batches.take())
        with self.factors.watching():
            losses, (buffers, seen) = self.each(self.leaves, self.buffers, self.client_state, self.facts, now)
        descend_step(losses.sum(), self.optimiser, self.work, stacked=True)
        if buffers:  # one launch for all of them
            torch._foreach_copy_([self.buffers[name] for name in buffers], list(buffers.values()))
        for name, term in seen.items():
            if name not in stack.terms:
                stack.terms[name] = term.new_zeros(stack.capacity)
            stack.terms[name][:width].add_(term)


def _as_read(batches: StepInputs, model: Model) -> StepInputs:
    """Images [steps, m, b, c, h, w] in memory as convolutions of a stack read them, channel by channel."""
    x = batches.batch["x"]
    if not model.convolves or x.ndim != 6:
        return batches
    return batches._replace(batch=batches.batch | {"x": x.transpose(2, 3).contiguous().transpose(2, 3)})


def shape_of(work: Work, given: Given, feed: BatchFeed) -> tuple[Any, ...]:
    """What two cohorts must have in common to be trained in the same memory."""
    method, received, mine, facts = given
    parts = [
        (type(p), *((f.name, v) for f in fields(p) if not isinstance(v := getattr(p, f.name), Tensor)))  # type: ignore[arg-type]
        for p in method.parts
    ]
    seen = (shapes(received, 0), shapes((mine, facts), 1), feed.shapes)
    return (repr(parts), repr(replace(work, lr=0.0)), *seen)


def _float_fields(method: Method) -> list[Tensor]:
    return [v for p in method.parts for f in fields(p) if isinstance(v := getattr(p, f.name), Tensor)]  # type: ignore[arg-type]


def _floats_cloned(method: Method) -> Method:
    parts = []
    for part in method.parts:
        copy = object.__new__(type(part))
        copy.__dict__.update({k: v.clone() if isinstance(v, Tensor) else v for k, v in part.__dict__.items()})
        parts.append(copy)
    return replace(method, parts=tuple(parts))


def put(place: Any, tree: Any) -> None:
    """Copy tensors into the corner of larger ones, those of a type in one launch where that can be."""
    pairs: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for corner, new in _pairs(place, tree):
        pairs.setdefault(new.dtype, []).append((corner, new))
    for each in pairs.values():
        torch._foreach_copy_([corner for corner, _ in each], [new for _, new in each])


def _pairs(place: Any, tree: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Corners and what belongs there, by name: a state that was loaded may list tensors in another order."""
    if isinstance(place, dict):
        for name, inner in place.items():
            yield from _pairs(inner, tree[name])
    elif isinstance(place, tuple):
        for inner, new in zip(place, tree, strict=True):
            yield from _pairs(inner, new)
    else:
        yield place[tuple(slice(0, n) for n in tree.shape)], tree


def _head(tree: Any, width: int) -> Any:
    return tree_map(lambda t: t[:width] if t.ndim else t, tree)


def _bytes(tree: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree))
