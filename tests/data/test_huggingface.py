"""Hugging Face datasets: choice of columns with fake tables, and real saved datasets if the extra is installed."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as Pil

from unskew.base.errors import UserError
from unskew.data import load
from unskew.data.huggingface import HubName, from_splits, parse


class Image:
    """Fake features: the reader recognises the library's features by their class names."""


class Value:
    def __init__(self, dtype: str) -> None:
        self.dtype = dtype


class ClassLabel:
    def __init__(self, *names: str) -> None:
        self.names = list(names)


class List:
    def __init__(self, feature: object) -> None:
        self.feature = feature


class Array3D:
    dtype = "uint8"


class Table:
    """A fake table: columns with features."""

    def __init__(self, **columns: tuple[object, list[Any]]) -> None:
        self.features = {name: feature for name, (feature, _) in columns.items()}
        self._rows = {name: rows for name, (_, rows) in columns.items()}

    def __getitem__(self, column: str) -> list[Any]:
        return self._rows[column]


def pictures(rows: int, mode: str = "L", size: tuple[int, int] = (5, 4)) -> list[Pil.Image]:
    return [Pil.new(mode, size, i if mode == "L" else (i, 0, 9)) for i in range(rows)]


def make_dataset(loaded: object, test: float | None = None, **options: str) -> Any:
    return from_splits("hf:toy", loaded, options, test, 0)


def test_names_are_parsed_or_refused() -> None:
    assert parse("hf:mnist") == HubName("mnist", {})
    assert parse("hf:user/pets@x=photo,y=breed") == HubName("user/pets", {"x": "photo", "y": "breed"})
    for wrong in ("hf:", "hf:@x=a", "hf:a@z=b", "hf:a@x", "hf:a@x="):
        with pytest.raises(UserError, match=r"expected hf:NAME or hf:NAME@key=value"):
            parse(wrong)


def test_images_and_class_labels_are_read_from_two_splits() -> None:
    def table(rows: int) -> Table:
        return Table(
            id=(Value("int64"), [0] * rows), img=(Image(), pictures(rows)), y=(ClassLabel("a", "b"), [1] * rows)
        )

    data = make_dataset({"train": table(6), "test": table(2), "extra": None})
    assert (data.shape, data.train.x.dtype, data.classes) == ((1, 4, 5), torch.uint8, ("a", "b"))
    assert (len(data.train), len(data.test)) == (6, 2)
    assert data.train.x[:, 0, 0, 0].tolist() == list(range(6))
    with pytest.raises(UserError, match=r"expected no test fraction, because the dataset has the split test"):
        make_dataset({"train": table(6), "test": table(2)}, test=0.5)


def test_greyscale_images_become_colour_if_others_have_colour() -> None:
    train = Table(image=(Image(), pictures(4)), label=(ClassLabel("a"), [0] * 4))
    test = Table(image=(Image(), pictures(2, "RGB")), label=(ClassLabel("a"), [0] * 2))
    data = make_dataset({"train": train, "validation": test})
    assert data.shape == (3, 4, 5)
    mixed = Table(image=(Image(), pictures(4) + pictures(4, "RGB")), label=(ClassLabel("a"), [0] * 8))
    assert make_dataset(mixed, test=0.25).train.x.shape == (6, 3, 4, 5)


def test_lists_and_text_labels_are_read() -> None:
    table = Table(
        features=(List(Value("float32")), np.arange(40.0).reshape(20, 2).tolist()),
        label=(Value("string"), ["cat", "dog"] * 10),
        writer=(Value("string"), list("abcdefghij") * 2),
    )
    data = make_dataset(table, group="writer")
    assert (data.classes, data.shape, len(data.test)) == (("cat", "dog"), (2,), 4)
    assert data.train.group is not None


def test_arrays_of_bytes_stay_bytes() -> None:
    rows = np.zeros((10, 4, 4, 3), dtype=int).tolist()
    assert make_dataset(Table(x=(Array3D(), rows), y=(Value("int64"), [0, 1] * 5))).train.x.dtype == torch.uint8


def test_given_columns_are_read_and_ambiguous_ones_refused() -> None:
    table = Table(a=(Image(), pictures(10)), b=(Image(), pictures(10, "RGB")), c=(Value("int64"), [0, 1] * 5))
    assert make_dataset(table, x="b", y="c").shape == (3, 4, 5)
    with pytest.raises(UserError, match=r"can serve as y, found a \(Image\).*hf:toy@y=COLUMN"):
        make_dataset(table)
    with pytest.raises(UserError, match=r"can serve as x, found a \(Image\), b \(Image\).*hf:toy@x=COLUMN"):
        make_dataset(table, y="c")
    with pytest.raises(UserError, match=r"x: found 'd'; expected one of the columns a, b, c"):
        make_dataset(table, x="d", y="c")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pictures(3) + pictures(1, size=(9, 9)), r"images of one size in image, found sizes from \(4, 5\) to \(9, 9\)"),
        ([*pictures(3), None], r"found none in row 3"),
    ],
)
def test_missing_images_and_other_sizes_are_refused(rows: list[Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        make_dataset(Table(image=(Image(), rows), label=(ClassLabel("a"), [0] * 4)))


def test_ragged_lists_are_refused() -> None:
    with pytest.raises(UserError, match="arrays of one shape in x"):
        make_dataset(Table(x=(List(Value("float32")), [[1.0], [1.0, 2.0]]), y=(Value("int64"), [0, 1])))


def test_missing_training_split_is_refused() -> None:
    with pytest.raises(UserError, match="expected a split named train, found a, b"):
        make_dataset({"a": None, "b": None})


def test_missing_extra_names_the_pip_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'unskew\[hf\]'"):
        load("hf:mnist", tmp_path)


def test_a_failed_download_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Library:
        @staticmethod
        def load_dataset(*args: object) -> None:
            raise ConnectionError("no route")

    monkeypatch.setattr(importlib, "import_module", lambda name: Library)
    with pytest.raises(UserError, match=r"hf:mnist: .*no route.*save_to_disk"):
        load("hf:mnist", tmp_path)


@pytest.mark.parametrize("relative", [True, False])
def test_datasets_saved_to_disk_are_read(tmp_path: Path, relative: bool) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    rows = {"image": pictures(10, "RGB"), "label": [0, 1] * 5}
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(str(tmp_path / "both"))
    table.save_to_disk(str(tmp_path / "one"))
    place = "" if relative else f"{tmp_path}/"
    data = load(f"hf:{place}both", tmp_path)
    assert (data.shape, data.classes, len(data.test)) == ((3, 4, 5), ("a", "b"), 10)
    assert data.train.x[:, 0, 0, 0].tolist() == list(range(10))
    assert len(load(f"hf:{place}one@x=image,y=label", tmp_path).test) == 2


def test_real_lists_and_arrays_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"x": datasets.Array3D((2, 2, 3), "uint8"), "y": datasets.Value("int64")})
    rows = {"x": np.full((10, 2, 2, 3), 7, dtype=np.uint8), "y": [0, 1] * 5}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(tmp_path / "arrays"))
    datasets.Dataset.from_dict({"x": [[1.0, 2.0]] * 10, "label": ["n", "m"] * 5}).save_to_disk(str(tmp_path / "lists"))
    assert load("hf:arrays", tmp_path).train.x.dtype == torch.uint8
    lists = load("hf:lists", tmp_path)
    assert (lists.shape, lists.classes) == ((2,), ("m", "n"))
