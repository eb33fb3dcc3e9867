"""Datasets from arrays in memory; the layout rules here are shared with `.npz` files.

uint8 with 3 dimensions      images N x H x W, stored as uint8 [N, 1, H, W]
uint8 with 4 dimensions      images; N x H x W x C with C of 1, 3 or 4 becomes [N, C, H, W], anything else is taken to
                             be channel first already
uint8 of any other rank      stored as it is; like all uint8, scaled by 255 in `Dataset.prepare`
floats, integers, bool       stored as float32 in the shape and on the scale given: no axis is moved and nothing is
                             divided, since a float array may as well be a spectrogram, a signal or a table
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch

from unskew.base.errors import UserError
from unskew.data.dataset import Dataset, Split, check_values
from unskew.data.stratified_split import stratified

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
    """A dataset from NumPy or PyTorch arrays: test rows given, or split off as a fraction stratified by class.

    x: [N, ...]; y: [N] integers from 0 or strings; group: [N] owners of the rows of x; test: 0.2 unless test rows are
    given; mean, std: one value per channel.
    """
    scale = (None if mean is None else tuple(mean), None if std is None else tuple(std))
    rows, labels = to_tensor(x, name), _column(_numpy(y, name), name)
    owner = None if group is None else _numpy(group, name)
    if x_test is None and y_test is None:
        codes, names = encode(labels, classes, name)
        return split_rows(name, Split(rows, codes, owner), names, None, test, seed, *scale)
    if x_test is None or y_test is None or test is not None:
        raise UserError(f"{name}: expected either x_test and y_test together, or the fraction test; give one of these")
    codes, names = encode(np.concatenate([labels, _column(_numpy(y_test, name), name)]), classes, name)
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
    """A dataset from unsplit rows, by the mark of each row or else by a stratified fraction; is_test: [N] bool."""
    # Checked before rows are picked, since picking would fail first, and less clearly, than Dataset does.
    owners = list(rows.y.shape if rows.group is None else rows.group.shape)
    if len(rows.x) != len(rows.y) or owners != [len(rows.y)]:
        raise UserError(
            f"{name}: expected one label per row (and one group, if any), found {len(rows.x)} rows in x, "
            f"{len(rows.y)} labels in y" + ("" if rows.group is None else f" and group of shape {owners}")
        )
    check_values(rows, name, len(classes))  # while row numbers are those of whoever gave the rows
    if is_test is None:
        is_test = stratified(rows.y.numpy(), DEFAULT_TEST if test is None else test, seed, name)
    return Dataset(name, rows.take(~is_test), rows.take(is_test), classes, mean, std)


def to_tensor(x: Array, name: str) -> torch.Tensor:
    """Rows in the stored layout (see the module); x: [N, ...]."""
    rows = _numpy(x, name)
    if rows.ndim < 2:
        raise UserError(f"{name}: expected x of shape [N, ...], found {list(rows.shape)}; try x.reshape(len(x), -1)")
    if rows.dtype.kind not in "buif":
        raise UserError(f"{name}: expected x as numbers, found {rows.dtype}; try x.astype('float32')")
    if rows.dtype != np.uint8:
        with np.errstate(over="ignore"):  # too large for float32 becomes infinite, which Dataset refuses by row
            return torch.from_numpy(rows.astype(np.float32))
    if rows.ndim == 3:
        rows = rows[:, None]
    elif rows.ndim == 4 and rows.shape[-1] in (1, 3, 4):
        rows = rows.transpose(0, 3, 1, 2)
    return torch.from_numpy(rows.copy())


def encode(y: np.ndarray, classes: Sequence[str] | None, name: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    """Labels as int64 codes, with class names; y: [N] integers (used as they are) or strings (matched to names).

    Without `classes`, integers are named by themselves up to the largest and strings are sorted.
    """
    y = _column(y, name)
    names = None if classes is None else tuple(str(c) for c in classes)
    if y.dtype.kind in "US":
        return _encode_text(y.astype(str), names, name)
    if y.dtype.kind not in "bui":
        raise UserError(f"{name}: expected y as integers or strings, found {y.dtype}; try y.astype('int64')")
    low, high = int(y.min()), int(y.max())
    if low < 0 or (names is None and high >= max(len(y), 1000)):
        found = low if low < 0 else high
        raise UserError(
            f"{name}: expected labels counted from 0 without wide gaps, found {found}; "
            "renumber with numpy.unique(y, return_inverse=True)[1]"
        )
    if names is None and len(gaps := np.setdiff1d(np.arange(high + 1), y)):
        raise UserError(
            f"{name}: expected labels 0 to {high} with a row of each, found none of {gaps[0]}"
            f"{f' and {len(gaps) - 1} others' if len(gaps) > 1 else ''}; renumber with "
            "numpy.unique(y, return_inverse=True)[1], or name all classes"
        )
    # Labels beyond the names given are left for Dataset to refuse.
    return torch.from_numpy(y.astype(np.int64)), tuple(map(str, range(high + 1))) if names is None else names


def _encode_text(y: np.ndarray, names: tuple[str, ...] | None, name: str) -> tuple[torch.Tensor, tuple[str, ...]]:
    found, codes = np.unique(y, return_inverse=True)
    if names is None:
        return torch.from_numpy(codes.astype(np.int64)), tuple(str(c) for c in found)
    unknown = sorted(set(found.tolist()) - set(names))
    if unknown:
        raise UserError(f"{name}: expected labels among the classes {', '.join(names)}, found {', '.join(unknown)}")
    place = np.array([names.index(c) for c in found.tolist()], dtype=np.int64)
    return torch.from_numpy(place[codes]), names


def _column(y: np.ndarray, name: str) -> np.ndarray:
    if y.ndim != 1 or len(y) == 0:
        raise UserError(f"{name}: expected y of shape [N] with a label per row, found shape {list(y.shape)}")
    return y


def _numpy(values: Array, name: str) -> np.ndarray:
    try:
        return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError) as error:  # bfloat16 tensors, lists of unequal length
        raise UserError(f"{name}: expected arrays that NumPy can hold, found: {error}") from error
