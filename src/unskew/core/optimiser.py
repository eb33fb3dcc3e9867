"""SGD, Adam and AdamW on leaves and their gradients, by torch's own functional forms.

The classes of `torch.optim` call the same functions, so numbers are the same to the bit; but they also import torch's
compiler when the first one is made, which costs a run's start more than its first round, and each worker again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

if TYPE_CHECKING:
    from unskew.core.work import Work


class Optimiser:
    """Moves leaves in place; `state` has each leaf's slots by name and may be cleared or filled by the caller."""

    def __init__(self, leaves: list[Tensor], work: Work) -> None:
        self._leaves, self._work = leaves, work
        self.state: dict[Tensor, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """One step along the gradients of the leaves."""
        if self._work.optimiser == "sgd":
            self._sgd()
        else:
            self._adam()

    def _sgd(self) -> None:
        work, grads = self._work, self._grads()
        slots = [self.state.setdefault(leaf, {}) for leaf in self._leaves]
        velocity = [slot.get("momentum_buffer") for slot in slots] if work.momentum else []
        sgd(
            self._leaves,
            grads,
            velocity,
            weight_decay=work.weight_decay,
            momentum=work.momentum,
            lr=work.lr,
            dampening=0.0,
            nesterov=work.nesterov,
            maximize=False,
        )
        for slot, buffer in zip(slots, velocity):
            if buffer is not None:
                slot["momentum_buffer"] = buffer

    def _adam(self) -> None:
        work, grads = self._work, self._grads()
        slots = [self.state.setdefault(leaf, {}) for leaf in self._leaves]
        for leaf, slot in zip(self._leaves, slots):
            if not slot:
                # The counter stays on the host, where reading it waits for nothing.
                slot |= {
                    "step": torch.tensor(0.0),
                    "exp_avg": torch.zeros_like(leaf),
                    "exp_avg_sq": torch.zeros_like(leaf),
                }
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
            lr=work.lr,
            weight_decay=work.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _grads(self) -> list[Tensor]:
        return [leaf.grad if leaf.grad is not None else torch.zeros_like(leaf) for leaf in self._leaves]
