"""SGD, Adam and AdamW on leaves and their gradients, by torch's own functional forms.

The classes of `torch.optim` call the same functions, so numbers are the same to the bit; but they also import torch's
compiler when the first one is made, which costs a run's start more than its first round, and each worker again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from unskew.base.tree import State

if TYPE_CHECKING:
    from unskew.protocol.work import Work


def gradients(loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of every leaf, by one ordinary backward."""
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [whole(grad, leaf) for grad, leaf in zip(found, leaves)]


def whole(grad: Tensor | None, leaf: Tensor) -> Tensor:
    """Zeros where a loss does not reach a leaf; in one piece, as a fused optimiser asks for it."""
    return torch.zeros_like(leaf) if grad is None else grad.contiguous()


class GradientRule(NamedTuple):
    """How gradients are found and leaves moved by them; an engine's may have a form that only its `sgd` knows."""

    gradients: Callable[[Tensor, Sequence[Tensor]], list[Any]] = gradients
    sgd: Callable[..., None] = sgd  # takes what torch's takes and does what that does


PLAIN = GradientRule()


class Optimiser:
    """Moves leaves in place; `state` has each leaf's slots by name.

    With `slots` of the caller's, made by `optimiser_slots`, nothing is allocated later. A learning rate in a tensor
    on a GPU is read there at every step, in one kernel for all leaves, so that a recorded step follows the schedule.
    """

    def __init__(
        self,
        leaves: list[Tensor],
        work: Work,
        slots: list[State] | None = None,
        lr: Tensor | None = None,
        descent: GradientRule = PLAIN,
    ):
        self._leaves, self._work, self._descent = leaves, work, descent
        self._fused = lr is not None and lr.is_cuda
        self.lr: Any = lr if self._fused else work.lr
        self.state: dict[Tensor, State] = dict(zip(leaves, slots or []))

    def gradients(self, loss: Tensor) -> list[Any]:
        """Of the leaves, as `step` takes them."""
        return self._descent.gradients(loss, self._leaves)

    @torch.no_grad()
    def step(self, grads: Iterable[Any]) -> None:
        """One step along the gradients of the leaves."""
        if self._work.optimiser == "sgd":
            self._sgd(list(grads))
        else:
            self._adam(list(grads))

    def _sgd(self, grads: list[Any]) -> None:
        work = self._work
        slots = [self.state.setdefault(leaf, {}) for leaf in self._leaves]
        velocity = [slot.get("momentum_buffer") for slot in slots] if work.momentum else []
        self._descent.sgd(
            self._leaves,
            grads,
            velocity,
            weight_decay=work.weight_decay,
            momentum=work.momentum,
            lr=self.lr,
            fused=self._fused or None,
            dampening=0.0,
            nesterov=work.nesterov,
            maximize=False,
        )
        for slot, buffer in zip(slots, velocity):
            if buffer is not None:
                slot["momentum_buffer"] = buffer

    def _adam(self, grads: list[Tensor]) -> None:
        work = self._work
        slots = [self.state.setdefault(leaf, {}) for leaf in self._leaves]
        for leaf, slot in zip(self._leaves, slots):
            if not slot:
                # The counter stays on the host, where reading it waits for nothing.
                slot |= optimiser_slots(work, leaf) | {"step": torch.tensor(0.0)}
        adam(
            self._leaves,
            grads,
            [slot["exp_avg"] for slot in slots],
            [slot["exp_avg_sq"] for slot in slots],
            [],
            [slot["step"] for slot in slots],
            decoupled_weight_decay=work.optimiser == "adamw",
            amsgrad=False,
            beta1=work.betas[0],
            beta2=work.betas[1],
            lr=self.lr,
            fused=self._fused or None,
            weight_decay=work.weight_decay,
            eps=1e-8,
            maximize=False,
        )


def optimiser_slots(work: Work, leaf: Tensor) -> State:
    """What the optimiser keeps for a leaf, before its first step; zeros are the same as nothing."""
    if work.optimiser == "sgd":
        return {"momentum_buffer": torch.zeros_like(leaf)} if work.momentum else {}
    step = torch.zeros((), device=leaf.device)
    return {"step": step, "exp_avg": torch.zeros_like(leaf), "exp_avg_sq": torch.zeros_like(leaf)}
