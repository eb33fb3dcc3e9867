"""Clients with different numbers of steps in one stack: sort them, and shrink the stack when enough have ended."""

import numpy as np

SIZES = 8  # different widths, each of which a compiled step pays for once


def widths(steps: list[int], sizes: int = SIZES) -> list[int]:
    """Width of the stack at every step, for steps sorted from most to least: at most `sizes` values, least waste.

    >>> widths([5, 2, 1], sizes=2)
    [3, 3, 1, 1, 1]
    """
    active = np.array([sum(s > t for s in steps) for t in range(max(steps, default=0))])
    levels, lengths = np.unique(active, return_counts=True)  # rising widths, and for how many steps each is needed
    chosen = levels if len(levels) <= sizes else levels[_cheapest(levels, lengths, sizes)]
    return [int(chosen[np.searchsorted(chosen, width)]) for width in active]


def _cheapest(levels: np.ndarray, lengths: np.ndarray, sizes: int) -> list[int]:
    """Levels to keep so that rounding every level up to a kept one computes the fewest rows (dynamic programme)."""
    n, cumulative = len(levels), np.concatenate([[0], np.cumsum(lengths)])
    best = levels * cumulative[1:]  # one size: the first i+1 levels all rounded up to level i
    back = np.zeros((sizes, n), dtype=int)
    for size in range(1, sizes):
        # cost[i, j]: levels up to j with one size fewer, levels j+1..i rounded up to level i
        cost = best[None, :] + levels[:, None] * (cumulative[1:][:, None] - cumulative[1:][None, :])
        cost = np.where(np.arange(n)[None, :] < np.arange(n)[:, None], cost.astype(float), np.inf)
        cost[:, 0] = np.where(np.isinf(cost[:, 0]), best, cost[:, 0])
        back[size], best = cost.argmin(1), cost.min(1)
    kept, i = [], n - 1
    for size in range(sizes - 1, -1, -1):
        kept.append(i)
        i = back[size][i]
    return sorted(set(kept))
