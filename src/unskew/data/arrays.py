"""Datasets from arrays in memory; `.npz` files follow the same layout rules.

uint8 with 3 dimensions      images N x H x W, stored as uint8 [N, 1, H, W]
uint8 with 4 dimensions      images; N x H x W x C with C of 1, 3 or 4 becomes [N, C, H, W], anything else is assumed
                             to be channels first
uint8 of any other rank      stored unchanged; like all uint8, divided by 255 in `Dataset.prepare`
floats, integers, bool       stored as float32 in the given shape and scale: no axis is moved and nothing is divided,
                             because a float array may also be a spectrogram, a signal or a table
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from unskew.base.errors import UserError
from unskew.data.dataset import Dataset, Split, check_values
from unskew.data.stratified_split import stratified_mask

Array: TypeAlias = np.ndarray | torch.Tensor | Sequence[Any]
DEFAULT_TEST = 0.2


def from_arrays(
    x: Array,
    y: Array,
    *,
    test: float | None = None,
    x_test: Array | None = None,
    y_test: Array | None = None,
    group: Array | None = None,
    classes: Sequence[str] | None = None,
    name: str = "arrays",
    seed: int = 0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Dataset:
    """A dataset from NumPy or PyTorch arrays; test rows are given, or split off as a fraction stratified by class.

    x: [N, ...]; y: [N] integers from 0 or strings; group: [N] owner of each row of x; test: fraction, 0.2 by default,
    if no test rows are given; mean, std: one value per channel.
    """
    scale = (None if mean is None else tuple(mean), None if std is None else tuple(std))
    rows, labels = to_tensor(x, name), _check_1d(_to_numpy(y, name), name)
    owner = None if group is None else _to_numpy(group, name)
    if x_test is None and y_test is None:
        codes, names = encode_labels(labels, classes, name)
        return split_rows(name, Split(rows, codes, owner), names, None, test, seed, *scale)
    if x_test is None or y_test is None or test is not None:
        raise UserError(f"{name}: expected either x_test and y_test together, or the fraction test; give one of these")
    codes, names = encode_labels(np.concatenate([labels, _check_1d(_to_numpy(y_test, name), name)]), classes, name)
    train = Split(rows, codes[: len(labels)], owner)
    return Dataset(name, train, Split(to_tensor(x_test, name), codes[len(labels) :]), names, *scale)


def split_rows(
    name: str,
    rows: Split,
    classes: tuple[str, ...],
    is_test: np.ndarray | None,
    test: float | None,
    seed: int,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> Dataset:
    """A dataset from unsplit rows; is_test: [N] bool, or None to draw a stratified fraction as test rows."""
    # Checked before rows are selected, because indexing would fail with a less clear message than Dataset.
    owners = list(rows.y.shape if rows.group is None else rows.group.shape)
    if len(rows.x) != len(rows.y) or owners != [len(rows.y)]:
        raise UserError(
            f"{name}: expected one label per row (and one group, if any), found {len(rows.x)} rows in x, "
            f"{len(rows.y)} labels in y" + ("" if rows.group is None else f" and group of shape {owners}")
        )
    check_values(rows, name, len(classes))  # before the split, so that messages use the caller's row numbers
    if is_test is None:
        is_test = stratified_mask(rows.y.numpy(), DEFAULT_TEST if test is None else test, seed, name)
    return Dataset(name, rows.take(~is_test), rows.take(is_test), classes, mean, std)


def to_tensor(x: Array, name: str) -> torch.Tensor:
    """Rows in the stored layout (see the module); x: [N, ...]."""
    rows = _to_numpy(x, name)
    if rows.ndim < 2:
        raise UserError(f"{name}: expected x of shape [N, ...], found {list(rows.shape)}; try x.reshape(len(x), -1)")
    if rows.dtype.kind not in "buif":
        raise UserError(f"{name}: expected x as numbers, found {rows.dtype}; try x.astype('float32')")
    if rows.dtype != np.uint8:
        with np.errstate(over="ignore"):  # overflow gives infinity, and Dataset names the row
            return torch.from_numpy(rows.astype(np.float32))
    if rows.ndim == 3:
        rows = rows[:, None]
    elif rows.ndim == 4 and rows.shape[-1] in (1, 3, 4):
        rows = rows.transpose(0, 3, 1, 2)
    return torch.from_numpy(rows.copy())


def encode_labels(y: np.ndarray, classes: Sequence[str] | None, name: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Labels as int64 codes, with class names; y: [N] integers (used unchanged) or strings (matched to names).

    Without `classes`, integer classes are named "0" to the largest label, and string classes are sorted.
    """
    y = _check_1d(y, name)
    names = None if classes is None else tuple(str(c) for c in classes)
    if y.dtype.kind in "US":
        return _encode_text(y.astype(str), names, name)
    if y.dtype.kind not in "bui":
        raise UserError(f"{name}: expected y as integers or strings, found {y.dtype}; try y.astype('int64')")
    low, high = int(y.min()), int(y.max())
    if low < 0 or (names is None and high >= max(len(y), 1000)):
        raise UserError(
            f"{name}: expected labels counted from 0 without wide gaps, found {low if low < 0 else high}; "
            "renumber with numpy.unique(y, return_inverse=True)[1]"
        )
    if names is None and len(gaps := np.setdiff1d(np.arange(high + 1), y)):
        raise UserError(
            f"{name}: expected labels 0 to {high} with a row of each, found none of {gaps[0]}"
            f"{f' and {len(gaps) - 1} others' if len(gaps) > 1 else ''}; renumber with "
            "numpy.unique(y, return_inverse=True)[1], or give the names of all classes"
        )
    # Dataset refuses labels that have no name.
    return torch.from_numpy(y.astype(np.int64)), tuple(map(str, range(high + 1))) if names is None else names


def _encode_text(y: np.ndarray, names: tuple[str, ...] | None, name: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    values, codes = np.unique(y, return_inverse=True)
    if names is None:
        return torch.from_numpy(codes.astype(np.int64)), tuple(str(c) for c in values)
    unknown = sorted(set(values.tolist()) - set(names))
    if unknown:
        raise UserError(f"{name}: expected labels among the classes {', '.join(names)}, found {', '.join(unknown)}")
    index = np.array([names.index(c) for c in values.tolist()], dtype=np.int64)
    return torch.from_numpy(index[codes]), names


def _check_1d(y: np.ndarray, name: str) -> np.ndarray:
    if y.ndim != 1 or len(y) == 0:
        raise UserError(f"{name}: expected y of shape [N] with one label per row, found shape {list(y.shape)}")
    return y


def _to_numpy(values: Array, name: str) -> np.ndarray:
    try:
        return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError) as error:  # bfloat16 tensors, lists of different lengths
        raise UserError(f"{name}: expected arrays that NumPy can convert, found: {error}") from error
