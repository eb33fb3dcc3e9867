"""Large linear layers on a CPU: their gradient is multiplied piece by piece, and each moves its weights in the cache.

A whole one is written to memory and read again, which two workers wait for: 3 to 4 % of a round of `pfl-cifar`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.sgd import sgd

from unskew.engines.stacked.linear_grad import Product
from unskew.engines.stacked.lowrank_grad import Factored, Factors, who_takes
from unskew.protocol.optimiser import PLAIN, GradientRule
from unskew.protocol.work import Work

LARGE = 2**18  # weights from which it pays
PIECE, LINES = 2**18, 16  # numbers of a piece, as many as fit into a core's cache; outputs that BLAS multiplies at once


class Linear(nn.Linear):
    """Of rows whose gradient somebody wants in factors."""

    def forward(self, h: Tensor) -> Tensor:
        known = h.ndim == 2 and h.dtype == self.weight.dtype and not torch.is_autocast_enabled("cpu")
        mapped = torch._C._are_functorch_transforms_active()
        factors = who_takes(self.weight, h) if known and not mapped else None
        if factors is None:
            return super().forward(h)
        found = Product.apply(h, self.weight, h.dtype, factors)  # type: ignore[no-untyped-call]
        return found if self.bias is None else found + self.bias


def in_pieces(leaves: Sequence[Tensor], work: Work) -> GradientRule:
    """How one client's leaves are moved; a limit on gradients and Adam look at whole ones."""
    if work.optimiser != "sgd" or work.clip is not None:
        return PLAIN
    factors = Factors(leaf for leaf in leaves if leaf.ndim == 2 and leaf.numel() >= LARGE)
    return GradientRule(factors.gradients, descend, factors.watching)


def descend(leaves: list[Tensor], grads: list[Tensor | Factored], velocities: list[Tensor | None], **how: Any) -> None:
    """What torch's `sgd` does with whole gradients."""
    rest = [i for i, grad in enumerate(grads) if isinstance(grad, Tensor)]
    moved = [velocities[i] for i in rest] if velocities else []
    sgd([leaves[i] for i in rest], [grads[i] for i in rest], moved, **how)  # type: ignore[misc]
    for i, velocity in zip(rest, moved):
        velocities[i] = velocity
    for i, (leaf, grad) in enumerate(zip(leaves, grads)):
        if isinstance(grad, Factored):
            if velocities and velocities[i] is None:
                velocities[i] = torch.zeros_like(leaf)  # the same as none
            _follow(leaf, grad, velocities[i] if velocities else None, how)


def _follow(leaf: Tensor, grad: Factored, velocity: Tensor | None, how: dict[str, Any]) -> None:
    """Some of the outputs after others."""
    count = max(PIECE // leaf.shape[1] // LINES, 1) * LINES
    back = grad.back.mT.contiguous()
    for first in range(0, len(leaf), count):
        some = slice(first, first + count)
        piece = back[some] @ grad.rows
        piece = piece if grad.beside is None else piece.add_(grad.beside[some])
        sgd([leaf[some]], [piece], [] if velocity is None else [velocity[some]], **how)
