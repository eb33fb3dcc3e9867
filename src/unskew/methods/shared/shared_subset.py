"""Which of its rows a client shares."""

import numpy as np


def subset(generator: np.random.Generator, rows: int, share: float, least: int, released: bool) -> np.ndarray:
    """Positions of round(share rows) different rows, `least` at least; [-1], which picks nothing, for none.

    released: int(share rows) positions, a row may come twice, as in FLea's code.

    >>> sorted(subset(np.random.default_rng(0), 4, 1.0, 1, False).tolist())
    [0, 1, 2, 3]
    >>> subset(np.random.default_rng(0), 9, 0.1, 1, True).tolist()
    [-1]
    """
    if released:
        pick = generator.integers(rows, size=int(share * rows))
    else:
        pick = generator.permutation(rows)[: max(round(share * rows), least if share else 0)]
    return pick if len(pick) else np.array([-1])
