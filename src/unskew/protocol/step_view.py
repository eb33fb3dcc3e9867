"""What a loss may look at: the batch, the local model at any cut, the received model, and the part's own things."""

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
    """x [b, ...], y [b] int64 or [b, classes], w [b]: 1 for a real sample, 0 for filler; further columns in `more`."""

    x: Tensor
    y: Tensor
    w: Tensor
    more: dict[str, Tensor] = field(default_factory=dict)


class FrozenModel:
    """A model that is only looked at: eval mode, no gradient, every cut computed once."""

    def __init__(self, model: Model, state: State, x: Tensor) -> None:
        self._model, self._cuts = model, {0: x}
        self._state = {name: tensor.detach() for name, tensor in state.items()}

    def at(self, cut: int) -> Tensor:
        """Output of the first `cut` blocks on the batch."""
        # No gradient reaches its tensors, which are detached. An attack's rows are no constants: it needs the way
        # from them through a teacher, too.
        for i in range(max(c for c in self._cuts if c <= cut), cut):
            self._cuts[i + 1] = self._model.block(self._state, self._cuts[i], i, train=False)
        return at_least_float32(self._cuts[cut])

    @property
    def logits(self) -> Tensor:
        return self.at(self._model.depth)

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        """Blocks start..stop on other rows."""
        with torch.no_grad():
            return self._model.run(self._state, h, start, stop)


class ForwardPass:
    """One training step's forward pass, shared by all parts: local state, clones of the buffers, cuts computed once."""

    def __init__(self, model: Model, leaves: State, buffers: State, batch: Batch, seed: Tensor) -> None:
        # BatchNorm writes its running statistics in place; on clones the step stays a pure function.
        self.buffers = {name: tensor.clone() for name, tensor in buffers.items()}
        self.model, self.leaves, self.batch, self._seed = model, leaves, batch, seed
        self.state = leaves | self.buffers
        self._cuts = {0: batch.x}

    @cached_property
    def size(self) -> Tensor:
        return self.batch.w.sum()

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        for i in range(start, self.model.depth if stop is None else stop):
            h = self.model.block(self.state, h, i, train=True, seed=self._seed)
        return h

    def at(self, cut: int) -> Tensor:
        for i in range(max(c for c in self._cuts if c <= cut), cut):
            self._cuts[i + 1] = self.run(self._cuts[i], i, i + 1)
        return self._cuts[cut]

    def slope(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        # Not jvp: through BatchNorm in training its gradient is silently wrong. Buffers are cloned and handed out,
        # because an inner differentiation refuses to see tensors from outside written to.
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
    """Where a step stands, as 0-dim tensors."""

    step: Tensor
    epoch: Tensor
    seed: Tensor  # of this step's dropout masks


@dataclass(frozen=True)
class View:
    """The step as one part sees it."""

    _pass: ForwardPass
    start: State  # the received model
    received: dict[str, Any]  # this part's broadcasts
    part_state: PartState  # this client's state of this part
    draws: State
    counts: Tensor  # [classes] rows of this client
    clock: Clock
    streams: dict[str, Batch]
    _teacher: list[FrozenModel] = field(default_factory=list)
    _label_stats: dict[str, State] = field(default_factory=dict)  # by part

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
        """The trained tensors, without running statistics."""
        return self._pass.leaves

    @property
    def model(self) -> Model:
        """The net, without tensors."""
        return self._pass.model

    @property
    def feature(self) -> int:
        """The cut of the representation."""
        return self._pass.model.feature

    @property
    def logits(self) -> Tensor:
        return self.at(self._pass.model.depth)

    def at(self, cut: int) -> Tensor:
        """The local model's output at a cut, with gradient, computed once for all parts."""
        return at_least_float32(self._pass.at(cut))

    def run(self, h: Tensor, start: int, stop: int | None = None) -> Tensor:
        """Blocks start..stop of the local model on other rows, with gradient, in train mode."""
        return self._pass.run(h, start, stop)

    def slope(self, x: Tensor, loss: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """Logits of other inputs x, and the gradient of each input's `loss(logits)` [b] by that input.

        Both have gradients themselves; the net runs once, in train mode.
        """
        logits, slope = self._pass.slope(x, loss)
        return at_least_float32(logits), slope

    @property
    def teacher(self) -> FrozenModel:
        """The received model, shared by all parts of the step."""
        if not self._teacher:
            self._teacher.append(self.frozen(self.start))
        return self._teacher[0]

    def frozen(self, state: State, model: Model | None = None) -> FrozenModel:
        """Any other model on this batch; tensors it lacks (a client's own BatchNorm) are the received model's."""
        return FrozenModel(model or self._pass.model, self.start | state if model is None else state, self.x)

    def label_stats(self, part: Part) -> State:
        """What the part knows by the label counts; worked out here where nobody did before the steps."""
        return self._label_stats.get(part.name) or part.label_stats(self.counts)

    known = label_stats  # the old name, for one version
    mine = property(lambda self: self.part_state)  # the old name, for one version

    def stream(self, name: str) -> Batch | None:
        """This step's batch of a stream, None when the stream is empty."""
        return self.streams.get(name)

    def mean(self, per_sample: Tensor) -> Tensor:
        """Mean over the real samples of [b]."""
        return (per_sample * self.w).sum() / self.size

    def of(self, received: dict[str, Any], part_state: State, draws: State, streams: dict[str, Batch]) -> View:
        """The same step seen by another part; activations and teacher stay shared."""
        return replace(self, received=received, part_state=part_state, draws=draws, streams=streams)


def at_least_float32(z: Tensor) -> Tensor:
    """Outputs of a half-precision net as float32, in which losses are computed; float64 stays."""
    return z.float() if z.dtype in (torch.float16, torch.bfloat16) else z
