"""The catalogue of datasets: which ones the dataset folder holds, and how to get the others. It loads no rows."""

import gzip
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from unskew.base.errors import UserError
from unskew.data.mnist_idx import EMNIST_CLASSES

RowCounts: TypeAlias = tuple[int, ...]  # training and test rows, or all rows if the user chooses the split
Count: TypeAlias = Callable[[Sequence[Path]], RowCounts | None]


@dataclass(frozen=True)
class Layout:
    """One possible layout of a dataset: a folder in the dataset folder, and the files and folders it must contain."""

    folder: str
    members: tuple[str, ...]
    count: Count = lambda paths: None

    def paths(self, root: Path) -> list[Path]:
        """The paths of the members; a gzipped file replaces a plain one that does not exist."""
        plain = [root / self.folder / member for member in self.members]
        packed = [path.with_name(f"{path.name}.gz") for path in plain]
        return [gz if gz.is_file() and not path.exists() else path for path, gz in zip(plain, packed)]


@dataclass(frozen=True)
class DatasetEntry:
    """A dataset: its layouts, its terms of use, how to get it, and the checksums that `unskew data check` compares."""

    name: str
    classes: int | None
    layouts: tuple[Layout, ...]
    terms: str
    how_to_get: str
    checksums: str


@dataclass(frozen=True)
class DatasetStatus:
    """Whether a dataset is in the dataset folder; reason: the file that is missing or broken."""

    name: str
    state: Literal["present", "absent", "broken"]
    location: str
    reason: str = ""
    rows: RowCounts | None = None
    classes: int | None = None
    entry: DatasetEntry | None = field(default=None, repr=False)


def survey(root: Path) -> list[DatasetStatus]:
    """Every known dataset, then every other `.npz` with x and y in the dataset folder."""
    return [status(entry, root) for entry in ENTRIES] + list(_npz_files(root))


def status(entry: DatasetEntry, root: Path) -> DatasetStatus:
    """The state of one dataset, judged by file names, sizes and headers."""
    incomplete = ""
    for layout in entry.layouts:
        paths = layout.paths(root)
        absent = [path for path in paths if not path.exists()]
        if not absent:
            return _complete(entry, layout, paths)
        if len(absent) < len(paths) and not incomplete:
            incomplete = f"{absent[0].relative_to(root)} is missing ({len(absent)} of {len(paths)})"
    location = " or ".join(layout.folder for layout in entry.layouts)
    if not entry.layouts:
        return DatasetStatus(
            entry.name, "present", "part of scikit-learn", rows=(1797,), classes=entry.classes, entry=entry
        )
    return DatasetStatus(
        entry.name, "broken" if incomplete else "absent", location, incomplete, classes=entry.classes, entry=entry
    )


def _complete(entry: DatasetEntry, layout: Layout, paths: Sequence[Path]) -> DatasetStatus:
    make_status = partial(DatasetStatus, entry.name, location=layout.folder, classes=entry.classes, entry=entry)
    empty = [path.name for path in paths if path.is_file() and path.stat().st_size == 0]
    if empty:
        return make_status(state="broken", reason=f"{empty[0]} is empty")
    try:
        return make_status(state="present", rows=layout.count(paths))
    except UserError as error:
        return make_status(state="broken", reason=str(error))
    except OSError as error:
        return make_status(state="broken", reason=f"{layout.folder}: {error.strerror or error}")


def _npz_files(root: Path) -> Iterator[DatasetStatus]:
    for path in sorted(root.glob("*.npz")) if root.is_dir() else []:
        try:
            with np.load(path, allow_pickle=False) as archive:
                if not {"x", "y"} <= set(archive.files):
                    continue  # weights or other arrays, not a dataset
                y = archive["y"]
        except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            yield DatasetStatus(path.stem, "broken", path.name, f"{path.name}: {error}")
            continue
        yield DatasetStatus(path.stem, "present", path.name, rows=(y.size,), classes=len(np.unique(y)))


def _count_idx(paths: Sequence[Path]) -> RowCounts:
    """Row numbers from the headers of the two label files, which come second and last."""
    return _idx_rows(paths[1]), _idx_rows(paths[3])


def _idx_rows(path: Path) -> int:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            magic, rows = struct.unpack(">II", file.read(8))
    except (OSError, EOFError, zlib.error, struct.error) as error:
        raise UserError(f"{path.name} is not a complete IDX file ({error})") from error
    if magic != 0x801:
        raise UserError(f"{path.name} is not an IDX file of labels (it begins with {magic:08x})")
    return int(rows)


def _count_records(paths: Sequence[Path], record: int) -> RowCounts:
    """Row numbers from the file sizes; the last file is the test file."""
    sizes = [path.stat().st_size for path in paths]
    for path, size in zip(paths, sizes):
        if size % record:
            raise UserError(f"{path.name} has {size} bytes, which is not a multiple of {record}")
    return sum(sizes[:-1]) // record, sizes[-1] // record


def _count_lines(paths: Sequence[Path]) -> RowCounts:
    """Row numbers from the lines of the two label files, which come first."""
    return tuple(len(path.read_bytes().split()) for path in paths[:2])


def _count_table(paths: Sequence[Path]) -> RowCounts:
    """Number of lines of a table below its header."""
    return (len(paths[0].read_bytes().splitlines()) - 1,)


def _idx(name: str, classes: int, folders: Sequence[str], prefixes: tuple[str, str], *texts: str) -> DatasetEntry:
    tails = ("images-idx3-ubyte", "labels-idx1-ubyte")
    members = tuple(f"{prefix}-{tail}" for prefix in prefixes for tail in tails)
    return DatasetEntry(name, classes, tuple(Layout(folder, members, _count_idx) for folder in folders), *texts)


def _har(name: str, folders: Sequence[str], signal: str, *texts: str) -> DatasetEntry:
    axes = [f"{split}/Inertial Signals/{signal}_{axis}_{split}.txt" for split in ("train", "test") for axis in "xyz"]
    subjects = ("train/subject_train.txt", "test/subject_test.txt", "activity_labels.txt")
    members = ("train/y_train.txt", "test/y_test.txt", *subjects, *axes)
    return DatasetEntry(name, 6, tuple(Layout(folder, members, _count_lines) for folder in folders), *texts)


_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]
_CIFAR_TERMS = "no licence stated; cite Krizhevsky 2009"
_MD5 = "md5 of every file"
_NO_MD5 = "no checksum known"
_FETCH = "unskew data download {0}"
_EMNIST = [
    _idx(
        f"emnist-{variant}",
        len(names),
        ("EMNIST/raw", "EMNIST/raw/gzip", "emnist", "emnist/gzip"),
        (f"emnist-{variant}-train", f"emnist-{variant}-test"),
        "no licence stated (NIST); cite Cohen et al. 2017",
        "unskew data download emnist, or unpack gzip.zip of nist.gov",
        "md5 of gzip.zip only",
    )
    for variant, names in EMNIST_CLASSES.items()
]
ENTRIES: tuple[DatasetEntry, ...] = (
    DatasetEntry(
        "digits",
        10,
        (),
        "see its UCI page; cite Alpaydin and Kaynak 1998",
        "nothing to do",
        "comes with the package",
    ),
    DatasetEntry(
        "cifar10",
        10,
        (
            Layout(
                "cifar-10-batches-bin",
                (*(f"{batch}.bin" for batch in _BATCHES), "test_batch.bin"),
                partial(_count_records, record=3073),
            ),
            Layout("cifar-10-batches-py", (*_BATCHES, "test_batch")),
        ),
        _CIFAR_TERMS,
        _FETCH.format("cifar10"),
        _MD5,
    ),
    DatasetEntry(
        "cifar100",
        100,
        (
            Layout("cifar-100-binary", ("train.bin", "test.bin"), partial(_count_records, record=3074)),
            Layout("cifar-100-python", ("train", "test")),
        ),
        _CIFAR_TERMS,
        _FETCH.format("cifar100"),
        "md5 of the python files; size of the binary files",
    ),
    _idx(
        "mnist",
        10,
        ("MNIST/raw", "mnist"),
        ("train", "t10k"),
        "licence: see its website; cite LeCun et al. 1998",
        _FETCH.format("mnist"),
        _MD5,
    ),
    _idx(
        "fashion-mnist",
        10,
        ("FashionMNIST/raw", "fashion-mnist"),
        ("train", "t10k"),
        "MIT; cite Xiao et al. 2017",
        _FETCH.format("fashion-mnist"),
        "md5 of the .gz files",
    ),
    *_EMNIST,
    DatasetEntry(
        "cinic10",
        10,
        tuple(Layout(folder, ("train", "test")) for folder in ("CINIC-10", "cinic-10")),
        "images of CIFAR-10 and ImageNet, under their terms; cite Darlow et al. 2018",
        "CINIC-10.tar.gz from datashare.ed.ac.uk (item 10283/3192), then: unskew data unpack CINIC-10.tar.gz",
        _NO_MD5,
    ),
    _har(
        "ucihar",
        ("UCI HAR Dataset", "UCI-HAR"),
        "body_acc",
        "no commercial use; cite Anguita et al. 2013",
        "UCI HAR Dataset.zip from archive.ics.uci.edu (dataset 240), then: unskew data unpack 'UCI HAR Dataset.zip'",
        _NO_MD5,
    ),
    _har(
        "hapt",
        ("hapt",),
        "total_acc",
        "no commercial use; cite Anguita et al. 2013, Reyes-Ortiz et al. 2016",
        "raw signals from archive.ics.uci.edu (dataset 341), cut into windows in the layout of UCI-HAR",
        _NO_MD5,
    ),
    DatasetEntry(
        "celeba",
        2,
        (
            Layout(
                "celeba",
                ("list_eval_partition.txt", "list_attr_celeba.txt", "identity_CelebA.txt", "img_align_celeba"),
            ),
        ),
        "non-commercial research only; cite Liu et al. 2015",
        "download manually from mmlab.ie.cuhk.edu.hk",
        "md5 of the lists; pixel size of the images",
    ),
    DatasetEntry(
        "urbansound8k",
        10,
        (
            Layout(
                "UrbanSound8K", ("metadata/UrbanSound8K.csv", *(f"audio/fold{i}" for i in range(1, 11))), _count_table
            ),
        ),
        "CC BY-NC 3.0; cite Salamon et al. 2014",
        f"{_FETCH.format('urbansound8k')} (6 GB)",
        "md5 of the archive only",
    ),
)
