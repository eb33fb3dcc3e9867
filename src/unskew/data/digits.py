"""The handwritten digits that ship with scikit-learn: nothing to download, so every example runs offline."""

import gzip
import importlib.util
from pathlib import Path

import numpy as np

from unskew.data.arrays import from_arrays
from unskew.data.dataset import Dataset

_SPLIT_SEED = 0


def digits(test: float = 0.2) -> Dataset:
    """1797 images of 8 x 8, as float32 [N, 1, 8, 8] in [0, 1].

    Grey values run from 0 to 16 and are stored as value / 16, which is exact in float32 but would not be in uint8 over
    255. The test rows depend only on `test` and not on the seed of a run, so that all runs are scored on the same rows.
    """
    table = _table()
    x = (table[:, :-1].reshape(-1, 1, 8, 8) / 16).astype(np.float32)
    y = table[:, -1].astype(np.int64)
    return from_arrays(x, y, test=test, classes=[str(d) for d in range(10)], name="digits", seed=_SPLIT_SEED)


def _table() -> np.ndarray:
    """[1797, 65]: 64 grey values and the digit, read from the file because importing scikit-learn takes a second."""
    package = importlib.util.find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return np.loadtxt(gzip.decompress(file.read_bytes()).decode().splitlines(), delimiter=",")
    from sklearn.datasets import load_digits  # a scikit-learn version that stores the file elsewhere

    bunch = load_digits()
    return np.column_stack([bunch.data, bunch.target])
