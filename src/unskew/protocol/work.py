"""How a client trains: epochs or steps, batch size, optimiser and learning rate, and the effective number of steps."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from torch import Tensor

from unskew.base.tree import State
from unskew.protocol.optimiser import DEFAULT_GRADIENT_RULE, GradientRule, Optimiser


@dataclass(frozen=True)
class Work:
    """A client's local training in one round, after learning-rate schedules and the parts' `at_round`."""

    batch: int
    lr: float
    epochs: int | None = 1
    steps: int | None = None  # if given, replaces epochs
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    scope: Literal["round", "step"] = "round"  # step: the optimiser's state is reset after every step
    clip: float | None = None  # largest norm of one client's gradient
    prox_strength: float = 0.0  # strength mu of a proximal term, which pulls back and so reduces `effective_steps`

    def steps_for(self, rows: int) -> int:
        """Steps of a client with that many rows; 0 without rows."""
        if rows == 0:
            return 0
        return self.steps if self.steps is not None else (self.epochs or 0) * self.steps_per_epoch(rows)

    def steps_per_epoch(self, rows: int) -> int:
        """Batches in one epoch, counting a partial last one."""
        return -(-rows // self.batch)

    def rows_for(self, rows: int) -> int:
        """Rows that a client with `rows` rows processes in all its steps, without the filler of partial batches."""
        epochs, extra_steps = divmod(self.steps_for(rows), max(self.steps_per_epoch(rows), 1))
        return epochs * rows + min(extra_steps * self.batch, rows)

    def make_optimiser(
        self,
        leaves: Iterable[Tensor],
        slots: Iterable[State] = (),
        lr: Tensor | None = None,
        gradient_rule: GradientRule = DEFAULT_GRADIENT_RULE,
    ) -> Optimiser:
        """A fresh optimiser. All kinds are element-wise, so one on stacked leaves equals one per client.

        `slots` and `lr` are preallocated state and a learning rate in a tensor, see `Optimiser`.
        """
        return Optimiser(list(leaves), self, list(slots), lr, gradient_rule)

    def effective_steps(self, steps: int) -> float:
        """a_k: how far `steps` unit gradients move the weights, in learning rates (the norm of FedNova's a_k)."""
        return _displacement(steps, self.momentum, self.nesterov, self.scope == "step", self.lr * self.prox_strength)


@lru_cache(maxsize=4096)
def _displacement(steps: int, rho: float, nesterov: bool, reset_each_step: bool, prox_strength: float) -> float:
    """How far gradients of 1, less the pull of a proximal term, move the weights; `rho` is the momentum."""
    velocity = total = 0.0
    for _ in range(steps):
        gradient = 1.0 - prox_strength * total
        velocity = gradient if reset_each_step else rho * velocity + gradient
        total += gradient + rho * velocity if nesterov else velocity
    return total


def clip_gradients(grads: list[Tensor], limit: float, stacked: bool) -> list[Tensor]:
    """Gradients scaled down to a norm of at most `limit`; on a stack each client has its own norm."""
    square = sum(g.pow(2).reshape(len(g), -1).sum(1) if stacked else g.pow(2).sum() for g in grads)
    if not isinstance(square, Tensor):
        return grads
    factor = (limit / square.sqrt().clamp_min(1e-12)).clamp_max(1.0)
    # Not in place: autograd may return the same tensor for two leaves.
    return [g * (factor.view(-1, *(1,) * (g.ndim - 1)) if stacked else factor) for g in grads]
