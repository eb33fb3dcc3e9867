"""Stratified sampling of rows, identical on every machine and with every NumPy version."""

import numpy as np

from unskew.base.errors import UserError


def stratified_mask(y: np.ndarray, fraction: float, seed: int, name: str = "data") -> np.ndarray:
    """Mark `fraction` of the rows, proportionally in every class, as a pure function of the arguments.

    The number of marked rows of a class is its share rounded down or up, and at least one row stays unmarked.

    y: [N] integers; returns [N] bool, True for chosen rows.
    """
    _check(y, fraction, seed, name)
    _, codes, sizes = np.unique(y, return_inverse=True, return_counts=True)
    take = _quota(sizes, fraction)
    if take.sum() == 0:
        raise UserError(
            f"{name}: expected a fraction that picks at least one row, found {fraction} of {len(y)} rows in "
            f"{len(sizes)} classes; give a larger fraction or more rows per class"
        )
    # NumPy guarantees the raw words of a generator across versions, but not shuffles and permutations.
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
    remaining = round(float(share.sum())) - int(take.sum())
    # A class that would lose its last row is skipped, because training must still see every class.
    open_classes = np.flatnonzero((take + 1 < sizes) & (take < share))
    by_remainder = open_classes[np.argsort((take - share)[open_classes], kind="stable")]
    take[by_remainder[: max(remaining, 0)]] += 1
    return take


def _check(y: np.ndarray, fraction: float, seed: int, name: str) -> None:
    if not 0 < fraction < 1:
        raise UserError(f"{name}: expected a fraction between 0 and 1 (neither included), found {fraction}; try 0.2")
    if seed < 0:
        raise UserError(f"{name}: expected a seed of 0 or more, found {seed}; try 0")
    if y.ndim != 1 or len(y) == 0:
        raise UserError(f"{name}: expected one label per row, found labels of shape {list(y.shape)}")
