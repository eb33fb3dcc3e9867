"""How a client trains: the amount of work, the optimiser and its schedule, and the effective number of steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from torch import Tensor

from unskew.base.tree import State
from unskew.protocol.optimiser import PLAIN, GradientRule, Optimiser


@dataclass(frozen=True)
class Work:
    """The work in force in one round, after schedules and `at_round`."""

    batch: int
    lr: float
    epochs: int | None = 1
    steps: int | None = None  # when given, counts instead of epochs
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    scope: Literal["round", "step"] = "round"  # step: the optimiser forgets after every step
    clip: float | None = None  # norm of one client's gradient
    prox_strength: float = 0.0  # strength of a proximal term, which shortens the way that gradients go

    def steps_for(self, rows: int) -> int:
        """Steps of a client with that many rows: none without rows."""
        if rows == 0:
            return 0
        return self.steps if self.steps is not None else (self.epochs or 0) * self.steps_per_epoch(rows)

    def steps_per_epoch(self, rows: int) -> int:
        """Batches in one pass, the last one partial."""
        return -(-rows // self.batch)

    def rows_for(self, rows: int) -> int:
        """Rows in all steps of a client with that many, without those that fill a partial batch."""
        passes, more = divmod(self.steps_for(rows), max(self.steps_per_epoch(rows), 1))
        return passes * rows + min(more * self.batch, rows)

    def make(
        self,
        leaves: Iterable[Tensor],
        slots: Iterable[State] = (),
        lr: Tensor | None = None,
        descent: GradientRule = PLAIN,
    ) -> Optimiser:
        """A fresh optimiser. Only element-wise ones: on stacked leaves they equal one optimiser per client.

        `slots` gives it memory of its own (see `Optimiser`); on a GPU it then reads `lr` anew at every step.
        """
        return Optimiser(list(leaves), self, list(slots), lr, descent)

    def effective_steps(self, steps: int) -> float:
        """a_k: how far `steps` unit gradients move the weights, in learning rates (FedNova's norm of a)."""
        return _displacement(steps, self.momentum, self.nesterov, self.scope == "step", self.lr * self.prox_strength)


@lru_cache(maxsize=4096)
def _displacement(steps: int, rho: float, nesterov: bool, forget: bool, prox_strength: float) -> float:
    velocity = total = 0.0
    for _ in range(steps):
        gradient = 1.0 - prox_strength * total
        velocity = gradient if forget else rho * velocity + gradient
        total += gradient + rho * velocity if nesterov else velocity
    return total


def clipped(grads: list[Tensor], limit: float, stacked: bool) -> list[Tensor]:
    """Each client's gradient scaled to at most `limit` in norm; on a stack the norm is per client, never over all."""
    square = sum(g.pow(2).reshape(len(g), -1).sum(1) if stacked else g.pow(2).sum() for g in grads)
    if not isinstance(square, Tensor):
        return grads
    factor = (limit / square.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    # Never in place: autograd may give two leaves the same tensor.
    return [g * (factor.view(-1, *(1,) * (g.ndim - 1)) if stacked else factor) for g in grads]
