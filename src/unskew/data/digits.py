"""The handwritten digits that ship inside scikit-learn: nothing to download, so every example can run offline."""

import numpy as np

from unskew.data.arrays import from_arrays
from unskew.data.dataset import Dataset

_SPLIT_SEED = 0


def digits(test: float = 0.2) -> Dataset:
    """1797 images of 8 x 8, as float32 [N, 1, 8, 8] in [0, 1].

    Grey values run from 0 to 16 and are stored as value / 16, which is exact in float32 and would not be in uint8 over
    255. The test rows depend on `test` alone, never on the seed of a run, so that all runs are scored on the same rows.
    """
    from sklearn.datasets import load_digits  # importing scikit-learn takes a second that other datasets need not pay

    bunch = load_digits()
    x = (bunch.images[:, None] / 16).astype(np.float32)
    return from_arrays(x, bunch.target, test=test, classes=[str(d) for d in range(10)], name="digits", seed=_SPLIT_SEED)
