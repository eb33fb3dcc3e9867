"""Datasets of the Hugging Face library, by `hf:NAME`, `hf:FOLDER` (saved to disk) or `hf:NAME@x=COLUMN,y=COLUMN`.

The rows are an image column or a column of arrays or lists, the labels a column of class labels, integers or strings.
A test split is used if there is one (named test, else validation or valid); any other split is left unread.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.base.errors import UserError, nearest
from unskew.data.arrays import from_arrays
from unskew.data.dataset import Dataset

PREFIX = "hf:"
_KEYS = ("x", "y", "group", "config")
_TEST = ("test", "validation", "valid")
_X_NAMES = ("image", "img", "x", "pixel_values", "features", "data")
_Y_NAMES = ("label", "labels", "y", "target", "class", "fine_label")


@dataclass(frozen=True)
class HubName:
    """What a name asks for: where the data are, and the columns and configuration if stated."""

    source: str
    options: Mapping[str, str]


def hub(name: str, root: Path, *, test: float | None = None, seed: int = 0) -> Dataset:
    """A dataset by its `hf:` name; images as uint8 [N, C, H, W], arrays and lists as `from_arrays` lays them out."""
    asked = parse(name)
    return from_splits(name, _fetch(name, asked, root), asked.options, test, seed)


def parse(name: str) -> HubName:
    """The parts of a name.

    >>> parse("hf:user/pets@x=photo,y=breed")
    HubName(source='user/pets', options={'x': 'photo', 'y': 'breed'})
    """
    source, at, tail = name.removeprefix(PREFIX).rpartition("@")
    if not at:
        source, tail = tail, ""
    options = dict(part.partition("=")[::2] for part in tail.split(",") if part)
    wrong = [key for key, value in options.items() if key not in _KEYS or not value]
    if wrong or not source:
        raise UserError(
            f"{name}: expected hf:NAME or hf:NAME@key=value,... with keys among {', '.join(_KEYS)}, "
            f"found {wrong[0] if wrong else 'no name'}; try hf:mnist@x=image,y=label"
        )
    return HubName(source, options)


def from_splits(name: str, found: Any, options: Mapping[str, str], test: float | None, seed: int) -> Dataset:
    """A dataset from what the library returned: one table of rows, or a mapping of split names to tables."""
    splits = found if isinstance(found, Mapping) else {"train": found}
    train, other = _choose(name, splits)
    table = splits[train]
    column, label = _columns(name, table.features, options)
    owners = list(table[options["group"]]) if "group" in options else None
    classes = getattr(table.features[label], "names", None)
    x, y = _rows(name, table, column), _labels(table, label)
    if other is None:
        return from_arrays(x, y, test=test, group=owners, classes=classes, name=name, seed=seed)
    if test is not None:
        raise UserError(
            f"{name}: expected no test fraction, since the dataset has the split {other}, found {test}; leave it out"
        )
    x_test, y_test = _rows(name, splits[other], column), _labels(splits[other], label)
    x, x_test = _alike(x, x_test)
    return from_arrays(x, y, x_test=x_test, y_test=y_test, group=owners, classes=classes, name=name)


def _fetch(name: str, asked: HubName, root: Path) -> Any:
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(f"{name}: expected the package datasets, found none; pip install 'unskew[hf]'") from error
    given = Path(asked.source).expanduser()
    folder = next((path for path in (given, root / given) if path.is_dir()), None)
    try:
        if folder is not None and any((folder / f).is_file() for f in ("dataset_dict.json", "state.json")):
            return library.load_from_disk(str(folder))
        return library.load_dataset(asked.source if folder is None else str(folder), asked.options.get("config"))
    except Exception as error:  # the library raises its own kinds, and those of the network beneath it
        raise UserError(
            f"{name}: expected a dataset that the package datasets can load, found: {error}; check the name and the "
            "network, or save it with save_to_disk(FOLDER) on a machine that has it and use hf:FOLDER"
        ) from error


def _choose(name: str, splits: Mapping[str, Any]) -> tuple[str, str | None]:
    """Names of the training and of the test split, None where rows must be split off."""
    if "train" in splits:
        return "train", next((split for split in _TEST if split in splits), None)
    if len(splits) == 1:
        return next(iter(splits)), None
    raise UserError(f"{name}: expected a split named train, found {', '.join(splits) or 'none'}; rename one of them")


def _columns(name: str, features: Mapping[str, Any], options: Mapping[str, str]) -> tuple[str, str]:
    """The columns of rows and labels: as stated, else the only fitting one, else the fitting one with a usual name."""
    for key in ("x", "y", "group"):
        if key in options and options[key] not in features:
            raise UserError(
                f"{name}: expected {key} among the columns {', '.join(features)}, "
                f"found {options[key]}{nearest(options[key], features)}"
            )
    y = options.get("y") or _pick(name, features, ("label", "value"), _Y_NAMES, "y")
    others = {column: feature for column, feature in features.items() if column != y}
    return options.get("x") or _pick(name, others, ("image", "array", "list"), _X_NAMES, "x"), y


def _pick(name: str, features: Mapping[str, Any], kinds: Sequence[str], usual: Sequence[str], key: str) -> str:
    for kind in kinds:
        fitting = [column for column, feature in features.items() if _kind(feature) == kind]
        named = [column for column in usual if column in fitting]
        # A column of plain values may be anything, such as an index, so it counts by its name alone.
        if named or (len(fitting) == 1 and kind != "value"):
            return (named or fitting)[0]
        if fitting and kind != "value":
            break
    shown = ", ".join(f"{column} ({type(feature).__name__})" for column, feature in features.items())
    raise UserError(
        f"{name}: expected one column that can serve as {key}, found {shown or 'none'}; "
        f"name it: {name.partition('@')[0]}@{key}=COLUMN"
    )


def _kind(feature: Any) -> str:
    """image, array, list, label, value or other, by the class of the feature, so that the library is not needed."""
    kind = type(feature).__name__
    if kind == "Image":
        return "image"
    if kind in ("Array2D", "Array3D", "Array4D", "Array5D"):
        return "array"
    if kind in ("Sequence", "List", "LargeList", "list"):
        return "list"
    if kind == "ClassLabel":
        return "label"
    plain = kind == "Value" and str(feature.dtype).startswith(("int", "uint", "string", "large_string", "bool"))
    return "value" if plain else "other"


def _labels(table: Any, column: str) -> np.ndarray:
    return np.asarray(list(table[column]))


def _rows(name: str, table: Any, column: str) -> np.ndarray:
    """Rows in the type of the column; [N, ...]."""
    feature = table.features[column]
    if _kind(feature) == "image":
        return _images(name, column, table[column])
    try:
        rows = np.asarray(list(table[column]))
        return rows.astype(np.uint8) if _inner(feature) == "uint8" else rows
    except (TypeError, ValueError) as error:
        raise UserError(f"{name}: expected arrays of one shape in {column}, found: {error}; make them alike") from error


def _inner(feature: Any) -> str:
    """The type of single values in a list of lists or an array."""
    while _kind(feature) == "list":
        feature = feature[0] if isinstance(feature, list) else feature.feature
    return str(getattr(feature, "dtype", ""))


def _images(name: str, column: str, pictures: Any) -> np.ndarray:
    """[N, H, W] if all are grey, else [N, H, W, 3]."""
    rows = []
    for number, picture in enumerate(pictures):
        if picture is None:
            raise UserError(f"{name}: expected an image in every row of {column}, found none in row {number}; drop it")
        rows.append(np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB")))
    sizes = sorted({row.shape[:2] for row in rows})
    if len(sizes) > 1:
        raise UserError(
            f"{name}: expected images of one size in {column}, found sizes from {sizes[0]} to {sizes[-1]}; "
            "resize them with the map method of the dataset, save it with save_to_disk(FOLDER) and use hf:FOLDER"
        )
    colour = any(row.ndim == 3 for row in rows)
    return np.stack([np.repeat(row[..., None], 3, axis=2) if colour and row.ndim == 2 else row for row in rows])


def _alike(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Grey images become colour where the other split has colour."""
    if {one.ndim, other.ndim} != {3, 4} or one.dtype != np.uint8 or other.dtype != np.uint8:
        return one, other
    both = [np.repeat(rows[..., None], 3, axis=3) if rows.ndim == 3 else rows for rows in (one, other)]
    return both[0], both[1]
