"""L-BFGS for many problems at once, with every try on a row of its own.

torch.optim.LBFGS would take all tries for one problem, so that one that diverges spoils the others. A step that does
not lower its row's value enough (Armijo) is halved; without that, as the attacks' own code has it, most tries on
standardised CIFAR-10 run away.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.audit.problem import Progress

HISTORY = 100
INNER = 20  # evaluations that count as one iteration, as in torch
FLAT, STILL = 1e-7, 1e-9  # largest gradient and largest move at which a try has ended
SAME = 1e-7  # share of the value that it changes by when it has: a message in single precision has a floor
ENOUGH = 1e-4  # share of the promised decrease

Pair = tuple[Tensor, Tensor, Tensor]  # a step, the change of the gradient, and 1 / <step, change>; 0 is of no use


def minimise(
    both: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, iterations: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Rows [T, D] and values [T] after the iterations, for both: rows -> (values [T], gradients [T, D])."""
    x = start.clone()
    value, g = both(x)
    pairs: list[Pair] = []
    scale = torch.ones_like(value)
    alive = value.isfinite() & g.isfinite().all(1)
    d, t = _steepest(g)
    for step in range(iterations * INNER):
        s = torch.where(alive[:, None], t[:, None] * d, 0)
        found, after = both(x + s)
        progress(step + 1, iterations * INNER)
        finite = found.isfinite() & after.isfinite().all(1)
        good = alive & finite & (found <= value + ENOUGH * t * (g * d).sum(1))
        moved = s.abs().amax(1) > STILL
        ended = good & ((after.abs().amax(1) <= FLAT) | ((found - value).abs() <= SAME * found))
        alive = alive & moved & ~ended
        y = torch.where(good[:, None], after - g, 0)
        s = torch.where(good[:, None], s, 0)
        x, value, g = x + s, torch.where(good, found, value), torch.where(good[:, None], after, g)
        if not bool(alive.any()):
            break
        curved = (s * y).sum(1)
        useful = curved > 1e-10
        if bool(useful.any()):
            pairs = [*pairs, (s, y, torch.where(useful, 1 / curved, 0))][-HISTORY:]
            scale = torch.where(useful, curved / (y * y).sum(1), scale)
        d, t = _next(pairs, scale, g, d, t, good)
    return x, value


def _steepest(g: Tensor) -> tuple[Tensor, Tensor]:
    return -g, (1 / g.abs().sum(1)).clamp_max(1.0)


def _next(pairs: list[Pair], scale: Tensor, g: Tensor, d: Tensor, t: Tensor, good: Tensor) -> tuple[Tensor, Tensor]:
    """Direction and length of each row's next step: a new one after a good step, else half of the last."""
    new = -_times_inverse(pairs, scale, g)
    first, short = _steepest(g)
    down = (new * g).sum(1) < 0
    new, whole = torch.where(down[:, None], new, first), torch.where(down, 1.0, short)
    return torch.where(good[:, None], new, d), torch.where(good, whole, 0.5 * t)


def _times_inverse(pairs: list[Pair], scale: Tensor, g: Tensor) -> Tensor:
    """The inverse curvature times g, by the two loops."""
    q, kept = g, []
    for s, y, rho in reversed(pairs):
        a = rho * (s * q).sum(1)
        q = q - a[:, None] * y
        kept.append(a)
    r = scale[:, None] * q
    for (s, y, rho), a in zip(pairs, reversed(kept)):
        r = r + (a - rho * (y * r).sum(1))[:, None] * s
    return r
