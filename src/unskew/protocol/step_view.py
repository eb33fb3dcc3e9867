"""What a part's `loss` sees of one training step: the batch, activations, the received model, its own state and draws.

A model is a sequence of blocks. A cut is a layer index: `at(cut)` is the output of the first `cut` blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unskew.base.tree import PartState, State
from unskew.models.model import Model

if TYPE_CHECKING:
    from unskew.protocol.part import Part


@dataclass(frozen=True)
class Batch:
    """x [b, ...], y [b] int64 or [b, classes], w [b]: 1 for a real sample, 0 for filler; `more` has further columns."""

    x: Tensor
    y: Tensor
    w: Tensor
    more: dict[str, Tensor] = field(default_factory=dict)


class FrozenModel:
    """A model in eval mode whose tensors get no gradient; each block runs once per batch."""

    def __init__(self, model: Model, state: State, x: Tensor) -> None:
        self._model, self._outputs = model, {0: x}
        self._state = {name: tensor.detach() for name, tensor in state.items()}

    def at(self, cut: int) -> Tensor:
        """Output of the first `cut` blocks on the batch."""
        # Not under no_grad: the tensors are detached, but an attack that optimises its input rows needs the gradient
        # through a teacher to them.
        for i in range(max(c for c in self._outputs if c <= cut), cut):
            self._outputs[i + 1] = self._model.block(self._state, self._outputs[i], i, train=False)
        return at_least_float32(self._outputs[cut])

    @property
    def logits(self) -> Tensor:
        return self.at(self._model.depth)

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        """Apply blocks start..stop to other rows, without gradient."""
        with torch.no_grad():
            return self._model.run(self._state, h, start, stop)


class ForwardPass:
    """One training step's forward pass, shared by all parts: each block runs once, on clones of the buffers."""

    def __init__(self, model: Model, leaves: State, buffers: State, batch: Batch, seed: Tensor) -> None:
        # BatchNorm updates its running statistics in place; cloning them keeps the step a pure function.
        self.buffers = {name: tensor.clone() for name, tensor in buffers.items()}
        self.model, self.leaves, self.batch, self._seed = model, leaves, batch, seed
        self.state = leaves | self.buffers
        self._outputs = {0: batch.x}

    @cached_property
    def size(self) -> Tensor:
        return self.batch.w.sum()

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        for i in range(start, self.model.depth if stop is None else stop):
            h = self.model.block(self.state, h, i, train=True, seed=self._seed)
        return h

    def at(self, cut: int) -> Tensor:
        for i in range(max(c for c in self._outputs if c <= cut), cut):
            self._outputs[i + 1] = self.run(self._outputs[i], i, i + 1)
        return self._outputs[cut]

    def slope(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        # Not jvp: its gradient through BatchNorm in train mode is silently wrong. The buffers are cloned inside and
        # returned, because torch.func.grad forbids in-place writes to tensors from outside.
        def inner(x: Tensor) -> tuple[Tensor, tuple[Tensor, State]]:
            buffers, h = {name: tensor.clone() for name, tensor in self.buffers.items()}, x
            for i in range(self.model.depth):
                h = self.model.block(self.leaves | buffers, h, i, train=True, seed=self._seed)
            return loss(at_least_float32(h)).sum(), (h, buffers)

        slope, (logits, buffers) = torch.func.grad(inner, has_aux=True)(x)
        self.buffers.update(buffers)
        self.state.update(buffers)
        return logits, slope


@dataclass(frozen=True)
class Clock:
    """Position of a step in the client's round, as 0-dim tensors."""

    step: Tensor
    epoch: Tensor
    seed: Tensor  # for this step's dropout masks


@dataclass(frozen=True)
class View:
    """One training step, as one part's `loss` sees it."""

    _pass: ForwardPass
    start: State  # the received model
    received: dict[str, Any]  # this part's broadcasts
    part_state: PartState  # this client's state of this part
    draws: State  # this part's "steps" draws, of this step
    counts: Tensor  # [classes] this client's label counts
    clock: Clock
    streams: dict[str, Batch]
    _teacher: list[FrozenModel] = field(default_factory=list)  # empty until first used; one list for all parts
    _label_stats: dict[str, State] = field(default_factory=dict)  # by part name

    @property
    def batch(self) -> Batch:
        return self._pass.batch

    @property
    def x(self) -> Tensor:
        return self.batch.x

    @property
    def y(self) -> Tensor:
        return self.batch.y

    @property
    def w(self) -> Tensor:
        return self.batch.w

    @property
    def size(self) -> Tensor:
        """Number of real samples in the batch."""
        return self._pass.size

    @property
    def parameters(self) -> State:
        """The trained tensors by name, without running statistics."""
        return self._pass.leaves

    @property
    def model(self) -> Model:
        """The architecture; the local tensors are in `parameters`."""
        return self._pass.model

    @property
    def feature(self) -> int:
        """The cut of the representation: `at(feature)` is the input of the classifier."""
        return self._pass.model.feature

    @property
    def logits(self) -> Tensor:
        return self.at(self._pass.model.depth)

    def at(self, cut: int) -> Tensor:
        """Output of the local model's first `cut` blocks on the batch, with gradient; computed once for all parts."""
        return at_least_float32(self._pass.at(cut))

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        """Apply blocks start..stop of the local model to other rows, with gradient, in train mode."""
        return self._pass.run(h, start, stop)

    def slope(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Logits of other inputs x, and the gradient of each input's `loss(logits)` [b] with respect to that input.

        Both can be differentiated again; the net runs once, in train mode.
        """
        logits, slope = self._pass.slope(x, loss)
        return at_least_float32(logits), slope

    @property
    def teacher(self) -> FrozenModel:
        """The received model on this batch, shared by all parts of the step."""
        if not self._teacher:
            self._teacher.append(self.frozen(self.start))
        return self._teacher[0]

    def frozen(self, state: State, model: Model | None = None) -> FrozenModel:
        """Another model on this batch; tensors that `state` lacks, such as private BatchNorm, are the received ones."""
        return FrozenModel(model or self._pass.model, self.start | state if model is None else state, self.x)

    def label_stats(self, part: Part) -> State:
        """The part's tensors derived from the label counts, computed now if that did not happen before the steps."""
        return self._label_stats.get(part.name) or part.label_stats(self.counts)

    known = label_stats  # the old name, for one version
    mine = property(lambda self: self.part_state)  # the old name, for one version

    def stream(self, name: str) -> Batch | None:
        """This step's batch of a stream; None if the stream has no rows."""
        return self.streams.get(name)

    def mean(self, per_sample: Tensor) -> Tensor:
        """Mean of per-sample values [b] over the real samples; filler does not count."""
        return (per_sample * self.w).sum() / self.size

    def for_part(self, received: dict[str, Any], part_state: State, draws: State, streams: dict[str, Batch]) -> View:
        """The same step for another part; activations and teacher stay shared."""
        return replace(self, received=received, part_state=part_state, draws=draws, streams=streams)

    of = for_part  # the old name, for one version


def at_least_float32(z: Tensor) -> Tensor:
    """Half-precision outputs as float32, because losses need it; float64 stays float64."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
