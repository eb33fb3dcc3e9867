"""L-BFGS for many problems at once: torch's own without line search, with every try on a row of its own.

torch.optim.LBFGS would take all tries for one problem, so that one that diverges spoils the others.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from unskew.privacy.problem import Progress

HISTORY = 100
INNER = 20  # steps that count as one iteration, as in torch
FLAT, STILL = 1e-7, 1e-9  # largest gradient and largest move at which a try has ended
SAME = 1e-7  # share of the value that it changes by when it has: a message in single precision has a floor


def minimise(
    both: Callable[[Tensor], tuple[Tensor, Tensor]], start: Tensor, iterations: int, progress: Progress
) -> tuple[Tensor, Tensor]:
    """Rows [T, D] and values [T] after the iterations, for both: rows -> (values [T], gradients [T, D]).

    A row keeps the best place it has seen; one whose value is not finite any more stays there.
    """
    x = start.clone()
    value, g = both(x)
    best, lowest = x.clone(), value.clone()
    pairs: list[tuple[Tensor, Tensor, Tensor]] = []  # s, y and 1 / <s, y> of each step; 0 where it is of no use
    scale = torch.ones_like(value)
    alive = g.abs().amax(1) > FLAT
    d, t = -g, (1 / g.abs().sum(1)).clamp_max(1.0)
    for step in range(iterations * INNER):
        s, before = torch.where(alive[:, None], t[:, None] * d, 0), value
        x = x + s
        value, after = both(x)
        finite = value.isfinite() & after.isfinite().all(1)
        x, after = torch.where(finite[:, None], x, best), torch.where(finite[:, None], after, g)
        better = finite & (value < lowest)
        best, lowest = torch.where(better[:, None], x, best), torch.where(better, value, lowest)
        alive = alive & finite & (after.abs().amax(1) > FLAT) & (s.abs().amax(1) > STILL)
        alive = alive & ((value - before).abs() > SAME * value)
        progress(step + 1, iterations * INNER)
        if not bool(alive.any()):
            break
        y = after - g
        curved = (s * y).sum(1)
        useful = (curved > 1e-10) & alive
        pairs = [*pairs, (s, y, torch.where(useful, 1 / curved, 0))][-HISTORY:]
        scale = torch.where(useful, curved / (y * y).sum(1), scale)
        g = after
        d, t = -_times_inverse(pairs, scale, g), torch.ones_like(value)
    return best, lowest


def _times_inverse(pairs: list[tuple[Tensor, Tensor, Tensor]], scale: Tensor, g: Tensor) -> Tensor:
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
