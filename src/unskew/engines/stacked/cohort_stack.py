"""A cohort's training in static memory: every step reads its inputs and writes its results at fixed addresses.

A step can therefore be captured once as a CUDA graph and replayed in every later step and round. Without a graph, a
small model's step waits for the launches of its hundreds of kernels. Together with stacked_layers.py, `lmd-shards-10`
fell from 406 to 145 ms a round on an H200 and `flea-mobilenet` from 9.6 to 2.0 s (every step: docs/lab/speed-log.md).
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
from unskew.client.round import PRIVATE, StepInputs, optimiser_step, step_loss
from unskew.engines.engine import EngineContext
from unskew.engines.stacked import kernels
from unskew.engines.stacked.cuda_graph import CudaGraph, new_pool
from unskew.engines.stacked.lowrank_grad import LowRankCapture
from unskew.engines.stacked.step_inputs import StepInputBuffer
from unskew.engines.stacked.widths import widths
from unskew.models.model import Model
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method
from unskew.protocol.optimiser import DEFAULT_GRADIENT_RULE, GradientRule, optimiser_slots
from unskew.protocol.work import Work
from unskew.wire.requests_and_replies import Received

FILL_BYTES = 256 * 2**20  # of batches that are made at once
RoundInputs = tuple[Method, Received, Tree, ClientFacts]


class CohortStack:
    """Trains cohorts of up to `capacity` clients whose inputs have the same shapes."""

    def __init__(self, context: EngineContext, work: Work, inputs: RoundInputs, feed: BatchFeed) -> None:
        self.context, self.capacity, self._shapes = context, len(feed.clients), feed.shapes
        method, received, client_state, facts = inputs
        first = _channel_major(feed.between(0, 1, self.capacity), context.model)
        self.steps_per_fill = max(min(FILL_BYTES // max(_nbytes(first), 1), 64), 1)
        self.method, self.received, self.client_state, self.facts = (
            _clone_tensor_fields(method), *(tree_map(torch.clone, tree) for tree in (received, client_state, facts)),
        )  # fmt: skip
        self.batches = StepInputBuffer(first, self.steps_per_fill, context.device)
        model = context.model
        self.state: State = {k: t.new_empty(self.capacity, *t.shape) for k, t in received.model.items()}
        self.leaves = {k: self.state[k] for k in model.parameters}
        self.buffers = {k: self.state[k] for k in model.buffers}
        self.slots = {k: optimiser_slots(work, t) for k, t in self.leaves.items()}
        self.terms: State = {}
        self.lr = torch.zeros((), device=context.device)
        self._width_steps: dict[int, _WidthStep] = {}
        self.pool = new_pool(context.device)  # shared by all widths, which train one after another
        self._reset = CudaGraph(self._reset_state, context.device)
        self.work = work  # replaced every round, for its learning rate
        self._staged: BatchFeed | None = None  # the feed whose first batches are already loaded

    def fits(self, feed: BatchFeed) -> bool:
        """Whether a cohort's batches fit into this stack's input memory."""
        return feed.shapes == self._shapes and len(feed.clients) <= self.capacity

    def stage(self, feed: BatchFeed) -> None:
        """Load the next cohort's first batches; the copies are queued behind the steps that still run.

        `train` would load them while the device waits: 0.4 of the 1.5 ms before the first step of `pfl-cifar`.
        """
        self._fill(feed, 0, max(feed.steps), len(feed.clients))
        self._staged = feed

    def train(self, work: Work, inputs: RoundInputs, feed: BatchFeed) -> tuple[State, State, int]:
        """Run all steps of a cohort: final states [m, ...], summed loss terms [m], and the number of client-steps."""
        already_staged, self._staged = feed is self._staged, None
        self._load(work, inputs)
        plan, ended_results = widths(feed.steps), list[tuple[slice, list[Tensor]]]()
        for step, width in enumerate(plan):
            if step % self.steps_per_fill == 0 and not (step == 0 and already_staged):
                self._fill(feed, step, len(plan), width)
            self._width_step(width).step()
            ended = slice(sum(s > step + 1 for s in feed.steps), sum(s > step for s in feed.steps))
            next_width = plan[step + 1] if step + 1 < len(plan) else 0
            # Save results of clients that have ended, but stay in the stack and would train on.
            if ended.start < ended.stop and next_width > ended.start:
                ended_results.append((ended, [t[ended].clone() for t in tree_leaves((self.state, self.terms))]))
        for clients, tensors in ended_results:
            for current, saved in zip(tree_leaves((self.state, self.terms)), tensors):
                current[clients] = saved
        count = len(feed.clients)
        final, terms = tree_map(lambda t: t[:count].clone(), (self.state, self.terms))
        return final, terms, sum(plan)

    def release(self) -> None:
        """Free memory and graphs now: break the reference cycle that otherwise waits for the garbage collector."""
        for width_step in self._width_steps.values():
            del width_step.step
        self._width_steps.clear()
        del self._reset

    def _fill(self, feed: BatchFeed, first: int, end: int, width: int) -> None:
        """Load batches from step `first` on."""
        copy_into(self.batches.tensors, feed.between(first, min(first + self.steps_per_fill, end), width))
        self.batches.rewind()

    def _load(self, work: Work, inputs: RoundInputs) -> None:
        """Copy this round's inputs into the static memory, and reset the state."""
        self.work = work
        method, received, client_state, facts = inputs
        for existing, new in zip(_tensor_fields(self.method), _tensor_fields(method)):
            existing.copy_(new)
        copy_into((self.received, self.client_state, self.facts), (received, client_state, facts))
        self._reset()
        self.lr.fill_(work.lr)
        if not self.lr.is_cuda:  # on a GPU the optimiser reads the tensor
            for width_step in self._width_steps.values():
                width_step.optimiser.lr = work.lr

    def _reset_state(self) -> None:
        """Set every client to the received model and its own tensors, and optimiser slots and loss terms to zero.

        Captured as a graph like a step: its twenty launches took the host 0.3 ms before the first step of a round.
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
    """A training step of the first `width` clients of a stack."""

    def __init__(self, stack: CohortStack, width: int) -> None:
        self.stack, self.width, self.work = stack, width, stack.work
        self.leaves = {k: t[:width].detach().requires_grad_() for k, t in stack.leaves.items()}
        self.buffers, self.client_state, self.facts = (
            _first_clients(t, width) for t in (stack.buffers, stack.client_state, stack.facts)
        )
        self.slots = [_first_clients(stack.slots[k], width) for k in self.leaves]
        leaves, sgd = list(self.leaves.values()), kernels.sgd_kernel(stack.context.device)
        plain_sgd = self.work.optimiser == "sgd" and self.work.clip is None
        self.lowrank = LowRankCapture(leaves if sgd and plain_sgd else [])
        rule = GradientRule(self.lowrank.gradients, sgd) if sgd else DEFAULT_GRADIENT_RULE
        self.optimiser = self.work.make_optimiser(leaves, self.slots, stack.lr, rule)
        model, method, received = stack.context.model, stack.method, stack.received
        self.mapped_loss = vmap(
            lambda params, buffers, state, facts, inputs: step_loss(
                method, model, params, buffers, received, state, facts, inputs
            )
        )
        self.step: Callable[[], None] = CudaGraph(self._step, stack.context.device, stack.pool)

    def _step(self) -> None:
        stack, width = self.stack, self.width
        inputs = tree_map(lambda t: t[:width], stack.batches.next_step())
        with self.lowrank.capturing():
            losses, (buffers, terms) = self.mapped_loss(
                self.leaves, self.buffers, self.client_state, self.facts, inputs
            )
        optimiser_step(losses.sum(), self.optimiser, self.work, stacked=True)
        if buffers:  # one launch for all of them
            torch._foreach_copy_([self.buffers[name] for name in buffers], list(buffers.values()))
        for name, term in terms.items():
            if name not in stack.terms:
                stack.terms[name] = term.new_zeros(stack.capacity)
            stack.terms[name][:width].add_(term)


def _channel_major(batches: StepInputs, model: Model) -> StepInputs:
    """Images [steps, m, b, c, h, w] with channels before rows in memory, as the convolutions of a stack read them."""
    x = batches.batch["x"]
    if not model.has_convolution or x.ndim != 6:
        return batches
    return batches._replace(batch=batches.batch | {"x": x.transpose(2, 3).contiguous().transpose(2, 3)})


def stack_key(work: Work, inputs: RoundInputs, feed: BatchFeed) -> tuple[Any, ...]:
    """Cohorts with equal keys can be trained in the same stack."""
    method, received, client_state, facts = inputs
    part_fields = [
        (type(p), *((f.name, v) for f in fields(p) if not isinstance(v := getattr(p, f.name), Tensor)))  # type: ignore[arg-type]
        for p in method.parts
    ]
    shapes_of_inputs = (shapes(received, 0), shapes((client_state, facts), 1), feed.shapes)
    return (repr(part_fields), repr(replace(work, lr=0.0)), *shapes_of_inputs)


def _tensor_fields(method: Method) -> list[Tensor]:
    return [v for p in method.parts for f in fields(p) if isinstance(v := getattr(p, f.name), Tensor)]  # type: ignore[arg-type]


def _clone_tensor_fields(method: Method) -> Method:
    parts = []
    for part in method.parts:
        copy = object.__new__(type(part))
        copy.__dict__.update({k: v.clone() if isinstance(v, Tensor) else v for k, v in part.__dict__.items()})
        parts.append(copy)
    return replace(method, parts=tuple(parts))


def copy_into(destination: Any, source: Any) -> None:
    """Copy tensors into the leading corner of larger ones, all of a dtype in one launch where possible."""
    by_dtype: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
    for view, new in _matching_views(destination, source):
        by_dtype.setdefault(new.dtype, []).append((view, new))
    for pairs in by_dtype.values():
        torch._foreach_copy_([view for view, _ in pairs], [new for _, new in pairs])


def _matching_views(destination: Any, source: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of the destination with their sources, matched by name: a loaded state may have another order."""
    if isinstance(destination, dict):
        for name, inner in destination.items():
            yield from _matching_views(inner, source[name])
    elif isinstance(destination, tuple):
        for inner, new in zip(destination, source, strict=True):
            yield from _matching_views(inner, new)
    else:
        yield destination[tuple(slice(0, n) for n in source.shape)], source


def _first_clients(tree: Any, width: int) -> Any:
    return tree_map(lambda t: t[:width] if t.ndim else t, tree)


def _nbytes(tree: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree))
