"""Datasets from `.npz` files with `x` and `y`, in the layouts described in `unskew.data.arrays`.

Optional keys: `group` [N] owner of each row; `split` or `is_test` [N] of 0 and 1, of false and true, or of "train" and
"test"; `classes` names. Other keys are ignored. No object in the file is ever unpickled.
"""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from unskew.base.errors import UserError
from unskew.data.arrays import encode_labels, split_rows, to_tensor
from unskew.data.dataset import Dataset, Split

_SPLIT_KEYS = ("split", "is_test")
_USED_KEYS = ("x", "y", "group", "classes", *_SPLIT_KEYS)


def npz(path: Path, *, test: float | None = None, seed: int = 0) -> Dataset:
    """A dataset from one file; test rows from its split array, else a stratified fraction (0.2) drawn by `seed`."""
    arrays = _read(path)
    name, split_keys = path.stem, [key for key in _SPLIT_KEYS if key in arrays]
    if split_keys and test is not None:
        raise UserError(
            f"{path}: expected either the array {split_keys[0]} in the file or a test fraction, found both ({test}); "
            "leave the fraction out to use the split of the file"
        )
    classes = arrays["classes"].astype(str).ravel().tolist() if "classes" in arrays else None
    y, names = encode_labels(arrays["y"], classes, name)
    rows = Split(to_tensor(arrays["x"], name), y, arrays.get("group"))
    is_test = _parse_split(arrays[split_keys[0]], split_keys[0], len(y), path) if split_keys else None
    return split_rows(name, rows, names, is_test, test, seed)


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays by key; unused keys are not read."""
    if not zipfile.is_zipfile(path):
        problem = "another kind of file, or a truncated one" if path.is_file() else "no such file"
        raise UserError(
            f"{path}: expected an .npz file, found {problem}; write it with numpy.savez(path, x=..., y=...)"
        )
    key = "the list of keys"
    try:
        with np.load(path, allow_pickle=False) as archive:
            absent = [k for k in ("x", "y") if k not in archive.files]
            if absent:
                raise UserError(
                    f"{path}: expected the keys x and y, found {', '.join(archive.files) or 'none'}; "
                    "write the file with numpy.savez(path, x=..., y=...)"
                )
            arrays = {}
            for key in (k for k in _USED_KEYS if k in archive.files):
                arrays[key] = archive[key]
            return arrays
    except (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path}: expected plain arrays, but could not read {key}: {error}; "
            "save numbers or strings, not Python objects, and check that the file is complete"
        ) from error


def _parse_split(marks: np.ndarray, key: str, rows: int, path: Path) -> np.ndarray:
    """True for test rows; marks: [N] of 0/1, bool, or train/test."""
    if marks.shape != (rows,):
        raise UserError(f"{path}: expected {key} of shape [{rows}], one mark per row, found {list(marks.shape)}")
    text = marks.dtype.kind in "US"
    low, high = ("train", "test") if text else (0, 1)
    values = marks.astype(str) if text else marks
    other = values[(values != low) & (values != high)]
    if len(other):
        raise UserError(f"{path}: expected {key} to contain only {low} and {high}, found {other[0]}")
    return np.asarray(values == high)
