"""Stratified choice of rows, the same on every machine and every NumPy version."""

import numpy as np

from unskew.base.errors import UserError


def stratified(y: np.ndarray, fraction: float, seed: int, name: str = "data") -> np.ndarray:
    """Mark `fraction` of the rows, spread over the classes in proportion, as a pure function of the arguments.

    Every class gives the floor or the ceiling of its share and always keeps at least one row unmarked.

    y: [N] integers; returns [N] bool, True where a row is chosen.
    """
    _check(y, fraction, seed, name)
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    take = _quota(sizes, fraction)
    if take.sum() == 0:
        raise UserError(
            f"{name}: expected a fraction that picks at least one row, found {fraction} of {len(y)} rows in "
            f"{len(sizes)} classes; give a larger fraction, or more rows per class"
        )
    # Raw generator words are frozen by NumPy's compatibility policy; shuffles and permutations are not.
    keys = np.random.PCG64(seed).random_raw(len(y))
    order = np.lexsort((keys, codes))
    starts = np.cumsum(sizes) - sizes
    rank = np.arange(len(y)) - np.repeat(starts, sizes)
    chosen = np.zeros(len(y), dtype=bool)
    chosen[order] = rank < np.repeat(take, sizes)
    return chosen


def _quota(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """Rows to take from each class by largest remainder; sizes: [C], returns [C]."""
    share = sizes * fraction
    take = np.minimum(np.floor(share).astype(np.int64), sizes - 1)
    spare = round(float(share.sum())) - int(take.sum())
    # A class that would lose its last row is passed over: training must still see every class.
    open_classes = np.flatnonzero((take + 1 < sizes) & (take < share))
    by_remainder = open_classes[np.argsort((take - share)[open_classes], kind="stable")]
    take[by_remainder[: max(spare, 0)]] += 1
    return take


def _check(y: np.ndarray, fraction: float, seed: int, name: str) -> None:
    if not 0 < fraction < 1:
        raise UserError(f"{name}: expected a fraction between 0 and 1 (neither included), found {fraction}; try 0.2")
    if seed < 0:
        raise UserError(f"{name}: expected a seed of 0 or more, found {seed}; try 0")
    if y.ndim != 1 or len(y) == 0:
        raise UserError(f"{name}: expected one label per row, found labels of shape {list(y.shape)}")
