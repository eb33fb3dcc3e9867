"""IDX readers on small folders: plain and gzipped files, orientation, and errors that name the file."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from unskew.base.errors import UserError
from unskew.data import load

FOLDERS = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}


def idx(array: np.ndarray) -> bytes:
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype(np.uint8).tobytes()
    )


def write_dataset(
    folder: Path, prefixes: tuple[str, str] = ("train", "t10k"), *, packed: bool = True, first: int = 0
) -> np.ndarray:
    """Six training and three test images of 4 x 5; returns the training images."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    images = []
    for prefix, rows in zip(prefixes, (6, 3)):
        x = rng.integers(0, 256, (rows, 4, 5), dtype=np.uint8)
        images.append(x)
        for name, array in (("images-idx3-ubyte", x), ("labels-idx1-ubyte", np.arange(rows) + first)):
            write(folder / f"{prefix}-{name}", idx(array), packed)
    return images[0]


def write(path: Path, content: bytes, packed: bool = True) -> None:
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "MNIST/raw"),
        ("mnist", "mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
    ],
)
def test_mnist_is_read_from_every_layout(tmp_path: Path, name: str, folder: str, packed: bool) -> None:
    x = write_dataset(tmp_path / folder, packed=packed)
    data = load(name, tmp_path, verify=False)
    assert np.array_equal(data.train.x.numpy()[:, 0], x)
    assert data.train.y.tolist() == list(range(6))
    assert (len(data.test), data.num_classes, data.shape) == (3, 10, (1, 4, 5))


@pytest.mark.parametrize("folder", ["EMNIST/raw", "EMNIST/raw/gzip", "emnist", "emnist/gzip"])
@pytest.mark.parametrize(
    ("variant", "classes"),
    [("byclass", 62), ("bymerge", 47), ("balanced", 47), ("letters", 26), ("digits", 10), ("mnist", 10)],
)
def test_emnist_is_turned_upright(tmp_path: Path, folder: str, variant: str, classes: int) -> None:
    first = 1 if variant == "letters" else 0
    x = write_dataset(tmp_path / folder, (f"emnist-{variant}-train", f"emnist-{variant}-test"), first=first)
    data = load(f"emnist-{variant}", tmp_path)
    assert np.array_equal(data.train.x.numpy()[:, 0], x.swapaxes(1, 2))
    assert data.train.y.tolist() == list(range(6))
    assert len(set(data.classes)) == classes


def test_letters_start_at_one(tmp_path: Path) -> None:
    write_dataset(tmp_path / "emnist", ("emnist-letters-train", "emnist-letters-test"), first=0)
    with pytest.raises(UserError, match=r"letters-train-labels.*expected labels from 1 to 26, found 0 in row 0"):
        load("emnist-letters", tmp_path)


IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (IMAGES, idx(np.zeros((6, 4))), "expected an IDX file of bytes in 3 dimensions"),
        (IMAGES, idx(np.zeros((6, 4, 5)))[:-1], "expected 120 bytes after the header .*found 119"),
        (IMAGES, idx(np.zeros((6, 4, 5))) + b"0", "expected 120 bytes after the header .*found 121"),
        (IMAGES, idx(np.zeros((0, 4, 5))), "truncated"),
        (IMAGES, b"\0\0\x08\x03\0", "truncated"),
        (IMAGES, b"", "beginning 00000803"),
        (IMAGES, b"\0\0\x08\x03" + b"\xff" * 12, "truncated"),
        (LABELS, idx(np.zeros(5)), "expected 6 labels, one for each image of train-images.*found 5"),
        (LABELS, idx(np.full(6, 10)), "expected labels from 0 to 9, found 10 in row 0"),
    ],
)
def test_bad_files_are_refused_by_name(tmp_path: Path, file: str, content: bytes, message: str) -> None:
    write_dataset(tmp_path / "mnist")
    write(tmp_path / "mnist" / file, content)
    with pytest.raises(UserError, match=rf"{file}\.gz: .*{message}"):
        load("mnist", tmp_path, verify=False)


@pytest.mark.parametrize("keep", [0, 5, 30, -4, -9])
def test_truncated_gzip_is_refused(tmp_path: Path, keep: int) -> None:
    write_dataset(tmp_path / "mnist")
    file = tmp_path / "mnist" / f"{IMAGES}.gz"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(UserError, match=rf"{IMAGES}\.gz: expected"):
        load("mnist", tmp_path, verify=False)


def test_altered_gzip_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "mnist")
    file = tmp_path / "mnist" / f"{IMAGES}.gz"
    content = bytearray(file.read_bytes())
    content[40] ^= 255
    file.write_bytes(content)
    with pytest.raises(UserError, match=rf"{IMAGES}\.gz: expected"):
        load("mnist", tmp_path, verify=False)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_checksums_are_verified(tmp_path: Path, name: str) -> None:
    write_dataset(tmp_path / FOLDERS[name])
    with pytest.raises(UserError, match=rf"{IMAGES}\.gz: expected md5 .*found .*truncated or altered"):
        load(name, tmp_path)


def test_missing_files_are_listed(tmp_path: Path) -> None:
    write_dataset(tmp_path / "MNIST" / "raw")
    (tmp_path / "MNIST" / "raw" / f"{LABELS}.gz").unlink()
    with pytest.raises(UserError, match=rf"(?s)MNIST/raw: {LABELS}\.gz\n.*mnist: train-images.*UNSKEW_DATA"):
        load("mnist", tmp_path)
