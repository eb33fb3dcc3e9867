"""Draws which of its rows a client shares."""

import numpy as np


def draw_subset(generator: np.random.Generator, rows: int, share: float, at_least: int, released: bool) -> np.ndarray:
    """Positions of round(share * rows) different rows, but not fewer than `at_least`; [-1], which is no row, for none.

    released: int(share * rows) positions with replacement, as in FLea's code.

    >>> sorted(draw_subset(np.random.default_rng(0), 4, 1.0, 1, False).tolist())
    [0, 1, 2, 3]
    >>> draw_subset(np.random.default_rng(0), 9, 0.1, 1, True).tolist()
    [-1]
    """
    if released:
        pick = generator.integers(rows, size=int(share * rows))
    else:
        pick = generator.permutation(rows)[: max(round(share * rows), at_least if share else 0)]
    return pick if len(pick) else np.array([-1])
