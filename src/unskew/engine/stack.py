"""A cohort's training in memory that stays where it is: a step finds its inputs and leaves its results in place.

So a step can be recorded once as a CUDA graph and played again in every later step and round: without it, a small
model's step waits for the launches of its hundreds of kernels. With the layers of `layers`, `lmd-shards-10` fell from
406 to 145 ms a round on an H200 and `flea-mobilenet` from 9.6 to 2.0 s (docs/speed.md has every step).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from unskew.core.client import OWN, Facts, Moment, Received, descend_step, step_loss
from unskew.core.method import Method
from unskew.core.optimiser import slots_of
from unskew.core.state import State, Tree, tree_map
from unskew.core.work import Work
from unskew.engine.base import Setting
from unskew.engine.feed import Cohort, shapes
from unskew.engine.graph import Recorded, new_pool
from unskew.engine.mapping import vmap
from unskew.engine.ragged import widths

AHEAD = 256 * 2**20  # bytes of batches made at once
Given = tuple[Method, Received, Tree, Facts]


class Stack:
    """Trains cohorts of up to `capacity` clients whose inputs have the same shapes."""

    def __init__(self, setting: Setting, work: Work, given: Given, feed: Cohort) -> None:
        self.setting, self.capacity = setting, len(feed.clients)
        method, received, mine, facts = given
        first = feed.between(0, 1, self.capacity)
        self.ahead = max(min(AHEAD // max(_bytes(first), 1), 64), 1)
        self.method, self.received, self.mine, self.facts = (
            _floats_cloned(method), *(tree_map(torch.clone, tree) for tree in (received, mine, facts)),
        )  # fmt: skip
        self.batches: Moment = tree_map(lambda t: t.new_empty(self.ahead, *t.shape[1:]), first)
        model = setting.model
        self.state: State = {k: t.new_empty(self.capacity, *t.shape) for k, t in received.model.items()}
        self.leaves = {k: self.state[k] for k in model.parameters}
        self.buffers = {k: self.state[k] for k in model.buffers}
        self.slots = {k: slots_of(work, t) for k, t in self.leaves.items()}
        self.terms: State = {}
        self.lr = torch.zeros((), device=setting.device)
        self.now = torch.zeros(1, dtype=torch.int64, device=setting.device)  # which of the batches made ahead
        self._lanes: dict[int, _Lane] = {}
        self.pool = new_pool(setting.device)  # of all widths, which train one after another
        self.work = work  # its learning rate is that of the round

    def train(self, work: Work, given: Given, feed: Cohort) -> tuple[State, State, int]:
        """All steps of a cohort: final states [m, ...], summed loss terms [m], and the clients' steps computed."""
        self._load(work, given, len(feed.clients))
        plan, kept = widths(feed.steps), []
        for step, width in enumerate(plan):
            if step % self.ahead == 0:
                ready = feed.between(step, min(step + self.ahead, len(plan)), width)
                _put(self.batches, ready)
                self.now.zero_()
            self._lane(width).step()
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
        for lane in self._lanes.values():
            del lane.step
        self._lanes.clear()

    def _load(self, work: Work, given: Given, m: int) -> None:
        """This round's inputs into their places; the optimiser starts from nothing."""
        self.work = work
        method, received, mine, facts = given
        for mine_now, new in zip(_float_fields(self.method), _float_fields(method)):
            mine_now.copy_(new)
        for place, trees in ((self.received, received), (self.mine, mine), (self.facts, facts)):
            _put(place, trees)
        start = received.model | mine.get(OWN, {})
        for name, tensor in self.state.items():
            tensor[:m].copy_(start[name])
        for tensor in tree_leaves((self.slots, self.terms)):
            tensor.zero_()
        self.lr.fill_(work.lr)
        for lane in self._lanes.values() if not self.lr.is_cuda else ():  # there the optimiser reads the tensor
            lane.optimiser.lr = work.lr

    def _lane(self, width: int) -> _Lane:
        if width not in self._lanes:
            self._lanes[width] = _Lane(self, width)
        return self._lanes[width]


class _Lane:
    """The first `width` clients of a stack."""

    def __init__(self, stack: Stack, width: int) -> None:
        self.stack, self.width, self.work = stack, width, stack.work
        self.leaves = {k: t[:width].detach().requires_grad_() for k, t in stack.leaves.items()}
        self.buffers, self.mine, self.facts = (_head(t, width) for t in (stack.buffers, stack.mine, stack.facts))
        self.slots = [_head(stack.slots[k], width) for k in self.leaves]
        self.optimiser = self.work.make(self.leaves.values(), self.slots, stack.lr)
        model, method, received = stack.setting.model, stack.method, stack.received
        self.each = vmap(lambda p, b, k, f, n: step_loss(method, model, p, b, received, k, f, n))
        self.step: Callable[[], None] = Recorded(self._step, stack.setting.device, stack.pool)

    def _step(self) -> None:
        stack, width = self.stack, self.width
        now = tree_map(lambda t: t.index_select(0, stack.now)[0, :width], stack.batches)
        losses, (buffers, seen) = self.each(self.leaves, self.buffers, self.mine, self.facts, now)
        descend_step(losses.sum(), self.leaves, self.optimiser, self.work, stacked=True)
        if buffers:  # one launch for all of them
            torch._foreach_copy_([self.buffers[name] for name in buffers], list(buffers.values()))
        for name, term in seen.items():
            if name not in stack.terms:
                stack.terms[name] = term.new_zeros(stack.capacity)
            stack.terms[name][:width].add_(term)
        stack.now.add_(1)


def shape_of(work: Work, given: Given, feed: Cohort) -> tuple[Any, ...]:
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


def _put(place: Any, tree: Any) -> None:
    """Copy tensors into the corner of larger ones, by name: a state that was loaded may list them in another order."""
    if isinstance(place, dict):
        for name, inner in place.items():
            _put(inner, tree[name])
    elif isinstance(place, tuple):
        for inner, new in zip(place, tree, strict=True):
            _put(inner, new)
    else:
        place[tuple(slice(0, n) for n in tree.shape)].copy_(tree)


def _head(tree: Any, width: int) -> Any:
    return tree_map(lambda t: t[:width] if t.ndim else t, tree)


def _bytes(tree: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(tree))
