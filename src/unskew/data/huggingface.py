"""Datasets of the Hugging Face library: `hf:NAME`, `hf:FOLDER` (saved to disk) or `hf:NAME@x=COLUMN,y=COLUMN`.

The rows are a column of images, arrays or lists, the labels a column of class labels, integers or strings.
A test split is used if there is one (named test, else validation or valid); other splits are not read.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unskew.base.errors import UserError, expected_one_of
from unskew.data.arrays import from_arrays
from unskew.data.dataset import Dataset

PREFIX = "hf:"
_KEYS = ("x", "y", "group", "config")
_TEST = ("test", "validation", "valid")
_X_NAMES = ("image", "img", "x", "pixel_values", "features", "data")
_Y_NAMES = ("label", "labels", "y", "target", "class", "fine_label")


@dataclass(frozen=True)
class HubName:
    """A parsed name: the name or folder of the dataset, and its columns and configuration if given."""

    source: str
    options: Mapping[str, str]


def load_hub(name: str, root: Path, *, test: float | None = None, seed: int = 0) -> Dataset:
    """A dataset by its `hf:` name; images as uint8 [N, C, H, W], arrays and lists in the layout of `from_arrays`."""
    parsed = parse(name)
    return from_splits(name, _load(name, parsed, root), parsed.options, test, seed)


def parse(name: str) -> HubName:
    """Parse a name.

    >>> parse("hf:user/pets@x=photo,y=breed")
    HubName(source='user/pets', options={'x': 'photo', 'y': 'breed'})
    """
    source, at, tail = name.removeprefix(PREFIX).rpartition("@")
    if not at:
        source, tail = tail, ""
    options = dict(option.partition("=")[::2] for option in tail.split(",") if option)
    wrong = [key for key, value in options.items() if key not in _KEYS or not value]
    if wrong or not source:
        raise UserError(
            f"{name}: expected hf:NAME or hf:NAME@key=value,... with the keys {', '.join(_KEYS)}, "
            f"found {wrong[0] if wrong else 'no name'}; try hf:mnist@x=image,y=label"
        )
    return HubName(source, options)


def from_splits(name: str, loaded: Any, options: Mapping[str, str], test: float | None, seed: int) -> Dataset:
    """A dataset from what the library returned: one table of rows, or a mapping of split names to tables."""
    splits = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    train, other = _choose_splits(name, splits)
    table = splits[train]
    column, label = _choose_columns(name, table.features, options)
    owners = list(table[options["group"]]) if "group" in options else None
    classes = getattr(table.features[label], "names", None)
    x, y = _rows(name, table, column), _labels(table, label)
    if other is None:
        return from_arrays(x, y, test=test, group=owners, classes=classes, name=name, seed=seed)
    if test is not None:
        raise UserError(
            f"{name}: expected no test fraction, because the dataset has the split {other}, found {test}; leave it out"
        )
    x_test, y_test = _rows(name, splits[other], column), _labels(splits[other], label)
    x, x_test = _match_channels(x, x_test)
    return from_arrays(x, y, x_test=x_test, y_test=y_test, group=owners, classes=classes, name=name)


def _load(name: str, parsed: HubName, root: Path) -> Any:
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(f"{name}: expected the package datasets, found none; type pip install 'unskew[hf]'") from error
    given = Path(parsed.source).expanduser()
    folder = next((path for path in (given, root / given) if path.is_dir()), None)
    try:
        if folder is not None and any((folder / f).is_file() for f in ("dataset_dict.json", "state.json")):
            return library.load_from_disk(str(folder))
        return library.load_dataset(parsed.source if folder is None else str(folder), parsed.options.get("config"))
    except Exception as error:  # the library raises its own exceptions and those of its network libraries
        raise UserError(
            f"{name}: expected a dataset that the package datasets can load, found: {error}; check the name and the "
            "network, or save it with save_to_disk(FOLDER) on a machine that has it and use hf:FOLDER"
        ) from error


def _choose_splits(name: str, splits: Mapping[str, Any]) -> tuple[str, str | None]:
    """Names of the training split and of the test split, None if test rows must be split off."""
    if "train" in splits:
        return "train", next((split for split in _TEST if split in splits), None)
    if len(splits) == 1:
        return next(iter(splits)), None
    raise UserError(f"{name}: expected a split named train, found {', '.join(splits) or 'none'}; rename one of them")


def _choose_columns(name: str, features: Mapping[str, Any], options: Mapping[str, str]) -> tuple[str, str]:
    """The columns of rows and labels: as given, else the only suitable one, else the suitable one with a usual name."""
    for key in ("x", "y", "group"):
        if key in options and options[key] not in features:
            raise UserError(f"{name}: {key}: {expected_one_of(features, options[key], 'one of the columns')}")
    y = options.get("y") or _pick_column(name, features, ("label", "value"), _Y_NAMES, "y")
    others = {column: feature for column, feature in features.items() if column != y}
    return options.get("x") or _pick_column(name, others, ("image", "array", "list"), _X_NAMES, "x"), y


def _pick_column(name: str, features: Mapping[str, Any], kinds: Sequence[str], usual: Sequence[str], key: str) -> str:
    for kind in kinds:
        suitable = [column for column, feature in features.items() if _kind(feature) == kind]
        named = [column for column in usual if column in suitable]
        # A column of plain values may be anything, such as an index, so it must have a usual name.
        if named or (len(suitable) == 1 and kind != "value"):
            return (named or suitable)[0]
        if suitable and kind != "value":
            break
    shown = ", ".join(f"{column} ({type(feature).__name__})" for column, feature in features.items())
    raise UserError(
        f"{name}: expected one column that can serve as {key}, found {shown or 'none'}; "
        f"choose one with {name.partition('@')[0]}@{key}=COLUMN"
    )


def _kind(feature: Any) -> str:
    """image, array, list, label, value or other, by the name of the feature's class: the library is not imported."""
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
    """Rows [N, ...] in the type of the column."""
    feature = table.features[column]
    if _kind(feature) == "image":
        return _images(name, column, table[column])
    try:
        rows = np.asarray(list(table[column]))
        return rows.astype(np.uint8) if _value_dtype(feature) == "uint8" else rows
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name}: expected arrays of one shape in {column}, found: {error}; give all rows the same shape"
        ) from error


def _value_dtype(feature: Any) -> str:
    """The type of the values in an array or in nested lists."""
    while _kind(feature) == "list":
        feature = feature[0] if isinstance(feature, list) else feature.feature
    return str(getattr(feature, "dtype", ""))


def _images(name: str, column: str, pictures: Any) -> np.ndarray:
    """[N, H, W] if all images are greyscale, else [N, H, W, 3]."""
    rows = []
    for number, picture in enumerate(pictures):
        if picture is None:
            raise UserError(
                f"{name}: expected an image in every row of {column}, found none in row {number}; remove that row"
            )
        rows.append(np.asarray(picture.convert("L" if picture.mode in ("1", "L") else "RGB")))
    sizes = sorted({row.shape[:2] for row in rows})
    if len(sizes) > 1:
        raise UserError(
            f"{name}: expected images of one size in {column}, found sizes from {sizes[0]} to {sizes[-1]}; "
            "resize them with the map method of the dataset, save it with save_to_disk(FOLDER) and use hf:FOLDER"
        )
    colour = any(row.ndim == 3 for row in rows)
    return np.stack([np.repeat(row[..., None], 3, axis=2) if colour and row.ndim == 2 else row for row in rows])


def _match_channels(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Convert greyscale images to colour if the other split has colour images."""
    if {one.ndim, other.ndim} != {3, 4} or one.dtype != np.uint8 or other.dtype != np.uint8:
        return one, other
    both = [np.repeat(rows[..., None], 3, axis=3) if rows.ndim == 3 else rows for rows in (one, other)]
    return both[0], both[1]
