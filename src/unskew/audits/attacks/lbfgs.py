"""Batched L-BFGS: every row is an independent problem.

torch.optim.LBFGS would treat all tries as one problem, so one that diverges would spoil the others. A step that does
not lower its row's value enough (Armijo condition) is halved; without that, as in the attacks' own code, most tries on
standardised CIFAR-10 diverge.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.audits.problem import Progress

HISTORY = 100
INNER = 20  # evaluations per iteration, as in torch
GRADIENT_TOLERANCE, STEP_TOLERANCE = 1e-7, 1e-9  # a row stops when its largest gradient or step entry is this small
VALUE_TOLERANCE = 1e-7  # relative change at which a row stops: a message in single precision cannot be matched exactly
ARMIJO = 1e-4  # required share of the decrease that the gradient predicts

Pair = tuple[Tensor, Tensor, Tensor]  # step, change of the gradient, and 1 / <step, change>, or 0 to ignore the pair


def minimise(
    value_and_grad: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, iterations: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Rows [T, D] and values [T] after the iterations, for value_and_grad: rows -> (values [T], gradients [T, D])."""
    x = start.clone()
    value, g = value_and_grad(x)
    pairs: list[Pair] = []
    scale = torch.ones_like(value)
    active = value.isfinite() & g.isfinite().all(1)
    d, t = _steepest(g)
    for step in range(iterations * INNER):
        s = torch.where(active[:, None], t[:, None] * d, 0)
        new_value, new_g = value_and_grad(x + s)
        progress(step + 1, iterations * INNER)
        finite = new_value.isfinite() & new_g.isfinite().all(1)
        accepted = active & finite & (new_value <= value + ARMIJO * t * (g * d).sum(1))
        moved = s.abs().amax(1) > STEP_TOLERANCE
        converged = accepted & (
            (new_g.abs().amax(1) <= GRADIENT_TOLERANCE) | ((new_value - value).abs() <= VALUE_TOLERANCE * new_value)
        )
        active = active & moved & ~converged
        y = torch.where(accepted[:, None], new_g - g, 0)
        s = torch.where(accepted[:, None], s, 0)
        x, value, g = x + s, torch.where(accepted, new_value, value), torch.where(accepted[:, None], new_g, g)
        if not bool(active.any()):
            break
        curvature = (s * y).sum(1)
        useful = curvature > 1e-10
        if bool(useful.any()):
            pairs = [*pairs, (s, y, torch.where(useful, 1 / curvature, 0))][-HISTORY:]
            scale = torch.where(useful, curvature / (y * y).sum(1), scale)
        d, t = _next_direction(pairs, scale, g, d, t, accepted)
    return x, value


def _steepest(g: Tensor) -> tuple[Tensor, Tensor]:
    """Direction and length of a first step."""
    return -g, (1 / g.abs().sum(1)).clamp_max(1.0)


def _next_direction(
    pairs: list[Pair], scale: Tensor, g: Tensor, d: Tensor, t: Tensor, accepted: Tensor
) -> tuple[Tensor, Tensor]:
    """Direction and length of each row's next step: a new direction if the last step was accepted, else half of it."""
    new = -_two_loop(pairs, scale, g)
    steepest, short = _steepest(g)
    descends = (new * g).sum(1) < 0
    new, length = torch.where(descends[:, None], new, steepest), torch.where(descends, 1.0, short)
    return torch.where(accepted[:, None], new, d), torch.where(accepted, length, 0.5 * t)


def _two_loop(pairs: list[Pair], scale: Tensor, g: Tensor) -> Tensor:
    """The approximate inverse Hessian times g, by the two-loop recursion."""
    q, alphas = g, []
    for s, y, rho in reversed(pairs):
        a = rho * (s * q).sum(1)
        q = q - a[:, None] * y
        alphas.append(a)
    r = scale[:, None] * q
    for (s, y, rho), a in zip(pairs, reversed(alphas)):
        r = r + (a - rho * (y * r).sum(1))[:, None] * s
    return r
