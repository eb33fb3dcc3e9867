"""MNIST, Fashion-MNIST and EMNIST from their IDX files, plain or gzipped."""

import gzip
import math
import string
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from unskew.base.errors import UserError
from unskew.data.checked_files import check_labels, missing_files_error, read_checked
from unskew.data.dataset import Dataset, Split

_MERGED = (*string.digits, *string.ascii_uppercase, *"abdefghnqrt")
EMNIST_CLASSES = {
    "byclass": (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase),
    "bymerge": _MERGED,
    "balanced": _MERGED,
    "letters": tuple(string.ascii_uppercase),
    "digits": tuple(string.digits),
    "mnist": tuple(string.digits),
}
_FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@dataclass(frozen=True)
class _Source:
    name: str
    folders: tuple[str, ...]
    train: str  # prefix of the training files
    test: str
    classes: tuple[str, ...]
    md5: dict[str, str]
    first_label: int = 0
    transposed: bool = False


def mnist(root: Path, *, verify: bool = True) -> Dataset:
    """MNIST from `MNIST/raw` or `mnist` under root: uint8 [N, 1, 28, 28], 10 classes."""
    source = _Source("mnist", ("MNIST/raw", "mnist"), "train", "t10k", tuple(string.digits), _MD5_MNIST)
    return _read(source, root, verify, 0.1307, 0.3081)


def fashion_mnist(root: Path, *, verify: bool = True) -> Dataset:
    """Fashion-MNIST from `FashionMNIST/raw` or `fashion-mnist` under root: uint8 [N, 1, 28, 28], 10 classes."""
    folders = ("FashionMNIST/raw", "fashion-mnist")
    source = _Source("fashion-mnist", folders, "train", "t10k", _FASHION, _MD5_FASHION)
    return _read(source, root, verify, 0.2860, 0.3530)


def emnist(root: Path, variant: str, *, verify: bool = True) -> Dataset:
    """One variant of EMNIST from `EMNIST/raw`, `emnist` or `emnist/gzip` under root: uint8 [N, 1, 28, 28] upright.

    Every variant uses the mean and standard deviation of byclass. The files do not name the writer of a row.
    """
    source = _Source(
        name=f"emnist-{variant}",
        folders=("EMNIST/raw", "EMNIST/raw/gzip", "emnist", "emnist/gzip"),
        train=f"emnist-{variant}-train",
        test=f"emnist-{variant}-test",
        classes=EMNIST_CLASSES[variant],
        md5={},
        first_label=1 if variant == "letters" else 0,
        transposed=True,
    )
    return _read(source, root, verify, 0.1722, 0.3309)


def _read(source: _Source, root: Path, verify: bool, mean: float, std: float) -> Dataset:
    tails = ("images-idx3-ubyte", "labels-idx1-ubyte")
    names = [f"{prefix}-{tail}" for prefix in (source.train, source.test) for tail in tails]
    for folder in source.folders:
        existing = [_plain_or_gz(root / folder / name) for name in names]
        paths = [path for path in existing if path is not None]
        if len(paths) == len(names):
            train = _read_split(source, paths[0], paths[1], verify)
            test = _read_split(source, paths[2], paths[3], verify)
            return Dataset(source.name, train, test, source.classes, (mean,), (std,))
    choices = [[_existing_or_gz(root / folder / name) for name in names] for folder in source.folders]
    raise missing_files_error(source.name, root, choices)


def _plain_or_gz(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def _existing_or_gz(path: Path) -> Path:
    """The existing file, or else the .gz name under which it is downloaded, for the list of missing files."""
    return _plain_or_gz(path) or path.with_name(path.name + ".gz")


def _read_split(source: _Source, images: Path, labels: Path, verify: bool) -> Split:
    x = _parse_idx(images, read_checked(images, md5=source.md5.get(images.name), verify=verify), dims=3)
    y = _parse_idx(labels, read_checked(labels, md5=source.md5.get(labels.name), verify=verify), dims=1)
    if len(x) != len(y):
        raise UserError(
            f"{labels}: expected {len(x)} labels, one for each image of {images.name}, found {len(y)}; "
            "the two files do not belong together; download both again"
        )
    check_labels(labels, y, len(source.classes), source.first_label)
    if source.transposed:
        x = x.swapaxes(1, 2)
    return Split(torch.from_numpy(x[:, None].copy()), torch.from_numpy(y.astype(np.int64) - source.first_label))


def _parse_idx(path: Path, data: bytes, dims: int) -> np.ndarray:
    """The unsigned bytes of one IDX file, in the shape given by its header."""
    content = _unzip(path, data) if path.suffix == ".gz" else data
    magic = content[:4].hex()
    if magic != f"000008{dims:02x}":
        raise UserError(
            f"{path}: expected an IDX file of bytes in {dims} dimensions (beginning 000008{dims:02x}), found {magic}; "
            "this is another kind of file; download it again"
        )
    start = 4 + 4 * dims
    shape: Sequence[int] = struct.unpack(f">{dims}I", content[4:start]) if len(content) >= start else (0,)
    size, actual = math.prod(shape), max(len(content) - start, 0)
    if size == 0 or actual != size:
        raise UserError(
            f"{path}: expected {size} bytes after the header (shape {list(shape)}), found {actual}; "
            "the file is truncated or altered; download it again"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _unzip(path: Path, data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise UserError(f"{path}: expected a complete gzip file, found: {error}; download it again") from error


_MD5_MNIST = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_MD5_FASHION = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
