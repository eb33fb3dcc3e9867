"""The catalogue has the names and folders of the readers, and tells present, absent and broken datasets apart."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from unskew.base.errors import UserError
from unskew.data import load, names
from unskew.data.dataset_catalogue import ENTRIES, DatasetEntry, DatasetStatus, status, survey

BY_NAME = {entry.name: entry for entry in ENTRIES}
LAYOUTS = [(entry, i) for entry in ENTRIES for i in range(len(entry.layouts))]


def label_file(rows: int) -> bytes:
    return gzip.compress(struct.pack(">II", 0x801, rows) + bytes(rows))


def write_mnist(root: Path) -> Path:
    folder = root / "MNIST/raw"
    folder.mkdir(parents=True)
    for part, rows in (("train", 7), ("t10k", 3)):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(b"any")
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(label_file(rows))
    return folder


def status_of(name: str, root: Path) -> DatasetStatus:
    return status(BY_NAME[name], root)


def test_every_dataset_is_listed() -> None:
    assert set(BY_NAME) == set(names())
    assert all(entry.terms and entry.how_to_get and entry.checksums for entry in ENTRIES)


@pytest.mark.parametrize(("entry", "index"), LAYOUTS, ids=[f"{entry.name}-{i}" for entry, i in LAYOUTS])
def test_readers_use_the_layouts_of_the_catalogue(tmp_path: Path, entry: DatasetEntry, index: int) -> None:
    """If all members exist but are empty, the reader complains about a broken file and not about missing ones."""
    layout = entry.layouts[index]
    for member in layout.members:
        path = tmp_path / layout.folder / member
        if (
            path.suffix
            or path.name.startswith(("data_batch", "test_batch"))
            or "ubyte" in path.name
            or "100" in entry.name
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
        else:
            path.mkdir(parents=True)
    with pytest.raises(UserError) as refused:
        load(entry.name, tmp_path)
    assert "found no complete copy" not in str(refused.value)


def test_datasets_are_absent_from_a_missing_folder(tmp_path: Path) -> None:
    states = survey(tmp_path / "nowhere")
    assert {one.state for one in states if one.name != "digits"} == {"absent"}
    assert status_of("mnist", tmp_path).location == "MNIST/raw or mnist"


def test_a_complete_dataset_is_present_with_its_rows(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    assert (status_of("mnist", tmp_path).state, status_of("mnist", tmp_path).rows) == ("present", (7, 3))


def test_a_broken_dataset_names_the_file(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path)
    file = folder / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(label_file(3)[:12])
    assert "t10k-labels-idx1-ubyte.gz is not a complete IDX file" in status_of("mnist", tmp_path).reason
    file.write_bytes(b"no gzip at all")
    assert status_of("mnist", tmp_path).state == "broken"
    file.write_bytes(gzip.compress(bytes(20)))
    assert "begins with 00000000" in status_of("mnist", tmp_path).reason
    file.write_bytes(b"")
    assert status_of("mnist", tmp_path).reason == "t10k-labels-idx1-ubyte.gz is empty"
    file.unlink()
    assert status_of("mnist", tmp_path).reason == "MNIST/raw/t10k-labels-idx1-ubyte is missing (1 of 4)"


def test_rows_are_counted_by_file_size(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(bytes(3074 * 4))
    (folder / "test.bin").write_bytes(bytes(3074))
    assert status_of("cifar100", tmp_path).rows == (4, 1)
    (folder / "test.bin").write_bytes(bytes(3073))
    assert status_of("cifar100", tmp_path).reason == "test.bin has 3073 bytes, which is not a multiple of 3074"


def test_npz_files_are_listed(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 1, 0]))
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    (tmp_path / "torn.npz").write_bytes(b"PK")
    files = {one.name: one for one in survey(tmp_path) if one.entry is None}
    assert sorted(files) == ["mine", "torn"]
    assert (files["mine"].rows, files["mine"].classes) == ((4,), 2)
    assert files["torn"].state == "broken"
