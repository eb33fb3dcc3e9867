"""SGD, Adam and AdamW on leaf tensors and given gradients, by torch's functional forms.

The classes of `torch.optim` call the same functions, so results are equal bit for bit. But creating the first one
imports torch's compiler, which takes longer than a run's first round, and does so again in every worker.
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
    """Gradients of every leaf, by one ordinary backward pass."""
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [grad_or_zeros(grad, leaf) for grad, leaf in zip(grads, leaves)]


def grad_or_zeros(grad: Tensor | None, leaf: Tensor) -> Tensor:
    """The gradient, or zeros if the loss does not depend on the leaf; contiguous, as fused optimisers need it."""
    return torch.zeros_like(leaf) if grad is None else grad.contiguous()


class GradientRule(NamedTuple):
    """How gradients are computed and applied. An engine may use gradients in a form that only its own `sgd` accepts."""

    gradients: Callable[[Tensor, Sequence[Tensor]], list[Any]] = gradients
    sgd: Callable[..., None] = sgd  # same arguments and effect as torch's functional `sgd`


DEFAULT_GRADIENT_RULE = GradientRule()


class Optimiser:
    """Updates leaves in place; `state` maps each leaf to its slots (momentum buffer, Adam's moments) by name.

    With preallocated `slots`, made by `optimiser_slots`, no step allocates memory. `lr` as a CUDA tensor is read on the
    GPU at every step, in one kernel for all leaves, so that a step captured in a CUDA graph follows the schedule.
    """

    def __init__(
        self,
        leaves: list[Tensor],
        work: Work,
        slots: list[State] | None = None,
        lr: Tensor | None = None,
        gradient_rule: GradientRule = DEFAULT_GRADIENT_RULE,
    ):
        self._leaves, self._work, self._gradient_rule = leaves, work, gradient_rule
        self._fused = lr is not None and lr.is_cuda
        self.lr: Any = lr if self._fused else work.lr
        self.state: dict[Tensor, State] = dict(zip(leaves, slots or []))

    def gradients(self, loss: Tensor) -> list[Any]:
        """Gradients of the leaves, in the form that `step` takes."""
        return self._gradient_rule.gradients(loss, self._leaves)

    @torch.no_grad()
    def step(self, grads: Iterable[Any]) -> None:
        """One optimiser step with the given gradients of the leaves."""
        if self._work.optimiser == "sgd":
            self._sgd(list(grads))
        else:
            self._adam(list(grads))

    def _sgd(self, grads: list[Any]) -> None:
        work = self._work
        slots = [self.state.setdefault(leaf, {}) for leaf in self._leaves]
        velocity = [slot.get("momentum_buffer") for slot in slots] if work.momentum else []
        self._gradient_rule.sgd(
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
                # The step counter stays on the CPU: reading it there does not synchronise.
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
    """The optimiser's state of a leaf before its first step; zeros are equivalent to no state at all."""
    if work.optimiser == "sgd":
        return {"momentum_buffer": torch.zeros_like(leaf)} if work.momentum else {}
    step = torch.zeros((), device=leaf.device)
    return {"step": step, "exp_avg": torch.zeros_like(leaf), "exp_avg_sq": torch.zeros_like(leaf)}
