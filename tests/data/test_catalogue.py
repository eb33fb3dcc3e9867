"""The catalogue against the readers: same names, same folders; and present, absent or broken on small trees."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from unskew.base.errors import UserError
from unskew.data import load, names
from unskew.data.dataset_catalogue import ENTRIES, DatasetEntry, DatasetStatus, status, survey

BY_NAME = {entry.name: entry for entry in ENTRIES}
LAID = [(entry, i) for entry in ENTRIES for i in range(len(entry.layouts))]


def labels(rows: int) -> bytes:
    return gzip.compress(struct.pack(">II", 0x801, rows) + bytes(rows))


def mnist(root: Path) -> Path:
    folder = root / "MNIST/raw"
    folder.mkdir(parents=True)
    for part, rows in (("train", 7), ("t10k", 3)):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(b"any")
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(labels(rows))
    return folder


def of(name: str, root: Path) -> DatasetStatus:
    return status(BY_NAME[name], root)


def test_every_dataset_is_listed() -> None:
    assert set(BY_NAME) == set(names())
    assert all(entry.terms and entry.get and entry.digest for entry in ENTRIES)


@pytest.mark.parametrize(("entry", "which"), LAID, ids=[f"{entry.name}-{i}" for entry, i in LAID])
def test_readers_look_where_the_catalogue_says(tmp_path: Path, entry: DatasetEntry, which: int) -> None:
    """With all members there, though empty, the reader finds fault with a file and no longer with its absence."""
    layout = entry.layouts[which]
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
    assert "found no complete set" not in str(refused.value)


def test_absent(tmp_path: Path) -> None:
    found = survey(tmp_path / "nowhere")
    assert {one.state for one in found if one.name != "digits"} == {"absent"}
    assert of("mnist", tmp_path).where == "MNIST/raw or mnist"


def test_present_with_rows(tmp_path: Path) -> None:
    mnist(tmp_path)
    assert (of("mnist", tmp_path).state, of("mnist", tmp_path).rows) == ("present", (7, 3))


def test_broken_names_the_file(tmp_path: Path) -> None:
    folder = mnist(tmp_path)
    file = folder / "t10k-labels-idx1-ubyte.gz"
    file.write_bytes(labels(3)[:12])
    assert "t10k-labels-idx1-ubyte.gz is no complete IDX file" in of("mnist", tmp_path).why
    file.write_bytes(b"no gzip at all")
    assert of("mnist", tmp_path).state == "broken"
    file.write_bytes(gzip.compress(bytes(20)))
    assert "begins with 00000000" in of("mnist", tmp_path).why
    file.write_bytes(b"")
    assert of("mnist", tmp_path).why == "t10k-labels-idx1-ubyte.gz is empty"
    file.unlink()
    assert of("mnist", tmp_path).why == "MNIST/raw/t10k-labels-idx1-ubyte is missing (1 of 4)"


def test_records(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-binary"
    folder.mkdir()
    (folder / "train.bin").write_bytes(bytes(3074 * 4))
    (folder / "test.bin").write_bytes(bytes(3074))
    assert of("cifar100", tmp_path).rows == (4, 1)
    (folder / "test.bin").write_bytes(bytes(3073))
    assert of("cifar100", tmp_path).why == "test.bin has 3073 bytes, no multiple of 3074"


def test_other_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 1, 0]))
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    (tmp_path / "torn.npz").write_bytes(b"PK")
    found = {one.name: one for one in survey(tmp_path) if one.entry is None}
    assert sorted(found) == ["mine", "torn"]
    assert (found["mine"].rows, found["mine"].classes) == ((4,), 2)
    assert found["torn"].state == "broken"
