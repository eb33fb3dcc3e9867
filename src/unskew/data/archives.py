"""Download, check and unpack official archives into the dataset folder, where the readers look for them.

Files are written under a temporary name and renamed when complete, so an interrupted command leaves no partial dataset.
"""

import gzip
import hashlib
import http.client
import os
import shutil
import stat
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import IO, TypeAlias

from unskew.base.errors import UserError, expected_one_of
from unskew.data.mnist_idx import _MD5_FASHION, _MD5_MNIST  # the only list of these checksums

ProgressCallback: TypeAlias = Callable[[int, int | None], None]  # bytes done, total bytes if known
TIMEOUT = 60.0  # seconds to wait for a response
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """One official archive: its dataset, its place in the dataset folder, its checksum (None if none is published).

    top_folder: the folder of the archive to unpack; if the archive does not have it, all of its content is unpacked.
    """

    dataset: str
    top_folder: str
    destination: str
    md5: str | None = None
    url: str | None = None


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
ARCHIVES: dict[str, Archive] = {
    "cifar-10-binary.tar.gz": Archive(
        "cifar10",
        "cifar-10-batches-bin",
        "cifar-10-batches-bin",
        "c32a1d4ab5d03f1284b67883e8d87530",
        f"{_CIFAR}cifar-10-binary.tar.gz",
    ),
    "cifar-10-python.tar.gz": Archive(
        "cifar10", "cifar-10-batches-py", "cifar-10-batches-py", "c58f30108f718f92721af3b95e74349a"
    ),
    "cifar-100-binary.tar.gz": Archive(
        "cifar100", "cifar-100-binary", "cifar-100-binary", "03b5dce01913d631647c71ecec9e9cb8"
    ),
    "cifar-100-python.tar.gz": Archive(
        "cifar100",
        "cifar-100-python",
        "cifar-100-python",
        "eb9058c3a382ffc7106e4002c42a8d85",
        f"{_CIFAR}cifar-100-python.tar.gz",
    ),
    "CINIC-10.tar.gz": Archive("cinic10", "CINIC-10", "CINIC-10"),
    "UCI HAR Dataset.zip": Archive("ucihar", "UCI HAR Dataset", "UCI HAR Dataset"),
    "UrbanSound8K.tar.gz": Archive(
        "urbansound8k",
        "UrbanSound8K",
        "UrbanSound8K",
        "9aa69802bbf37fb986f71ec1483a196e",
        "https://zenodo.org/records/1203745/files/UrbanSound8K.tar.gz",
    ),
    "gzip.zip": Archive(
        "emnist",
        "gzip",
        "EMNIST/raw/gzip",
        "58c8d27c78d21e728a6bc7b3cc06412e",
        "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
    ),
}
_IDX_FOLDERS = {"mnist": ("MNIST/raw", _MD5_MNIST), "fashion-mnist": ("FashionMNIST/raw", _MD5_FASHION)}
_MIRRORS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, with the checksum it must have."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def remote_files() -> dict[str, tuple[RemoteFile, ...]]:
    """The files to download for each dataset that has an official address."""
    files: dict[str, tuple[RemoteFile, ...]] = {
        a.dataset: (RemoteFile(a.url, a.md5),) for a in ARCHIVES.values() if a.url and a.md5
    }
    for name, address in _MIRRORS.items():
        checksums = {file: md5 for file, md5 in _IDX_FOLDERS[name][1].items() if file.endswith(".gz")}
        files[name] = tuple(RemoteFile(address + file, md5) for file, md5 in checksums.items())
    return files


def unpack(
    path: Path, root: Path, progress: ProgressCallback = lambda done, total: None, *, verify: bool = True
) -> Path:
    """Unpack one official archive, recognised by its file name, into the dataset folder; returns the new folder."""
    if not path.is_file():
        raise UserError(f"{path}: expected an archive, found no such file; check the path")
    if path.name in _MD5_MNIST and path.suffix == ".gz":
        return _copy_idx(path, root)
    if path.name not in ARCHIVES:
        raise UserError(
            f"{path}: {expected_one_of(ARCHIVES, path.name, 'a .gz file of MNIST or Fashion-MNIST, or one of')}; if it "
            "is one of these, give it its official name"
        )
    archive = ARCHIVES[path.name]
    destination = root / archive.destination
    if destination.exists():
        raise UserError(
            f"{path}: expected to create {destination}, found that it already exists; "
            "delete or rename it to unpack again"
        )
    if verify and archive.md5 is not None:
        _check_md5(path, archive.md5)
    destination.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root, prefix=".unpack-") as folder:
        unpacked = Path(folder) / "content"
        unpacked.mkdir()
        _extract(path, unpacked, progress)
        content = unpacked / archive.top_folder if (unpacked / archive.top_folder).is_dir() else unpacked
        if archive.md5 is None and not (content / "train").is_dir():  # without a checksum, at least check the layout
            raise UserError(
                f"{path}: expected an archive with a folder train, found none; this is not the official archive, "
                "download it again"
            )
        os.replace(content, destination)
    return destination


def download_dataset(
    name: str, root: Path, progress: Callable[[str], ProgressCallback] = lambda file: lambda done, total: None
) -> list[Path]:
    """Download and unpack a dataset that has an official address; returns the new files or folders."""
    downloads = remote_files()
    dataset = "emnist" if name.startswith("emnist-") else name
    if dataset not in downloads:
        raise UserError(
            f"{expected_one_of(sorted(downloads), name, 'a dataset that can be downloaded, one of')}; type unskew data "
            "to see how to get the others"
        )
    outstanding = [remote for remote in downloads[dataset] if not _is_present(dataset, remote, root)]
    root.mkdir(parents=True, exist_ok=True)
    new = []
    with TemporaryDirectory(dir=root, prefix=".download-") as folder:
        for remote in outstanding:
            file = download_file(remote, Path(folder), progress(remote.name))
            new.append(unpack(file, root, progress(remote.name), verify=False))  # download_file has just verified it
            file.unlink()
    return new


def _is_present(dataset: str, remote: RemoteFile, root: Path) -> bool:
    """Whether this file's content is in the dataset folder already, checked before anything large is downloaded."""
    if dataset in _IDX_FOLDERS:
        target = root / _IDX_FOLDERS[dataset][0] / remote.name
        return target.is_file() and md5_of(target) == remote.md5
    return (root / ARCHIVES[remote.name].destination).exists()


def download_file(remote: RemoteFile, folder: Path, progress: ProgressCallback = lambda done, total: None) -> Path:
    """Download one file into a folder; it gets its own name only when it is complete and its checksum is right."""
    target, partial = folder / remote.name, folder / f"{remote.name}.part"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        try:
            with urllib.request.urlopen(remote.url, timeout=TIMEOUT) as response, partial.open("wb") as out:
                length = response.headers.get("Content-Length")
                total = int(length) if length and length.isdecimal() else None
                done = _copy(response, out, lambda done: progress(done, total))
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UserError(f"{remote.url}: expected a download, found: {error}; {_manual_steps(remote)}") from error
        if total is not None and done != total:
            raise UserError(
                f"{remote.url}: expected {total} bytes, found {done}; try again, or {_manual_steps(remote)}"
            )
        _check_md5(partial, remote.md5)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _manual_steps(remote: RemoteFile) -> str:
    return f"download {remote.url} yourself (md5 {remote.md5}) and type: unskew data unpack {remote.name}"


def _copy(source: IO[bytes], out: IO[bytes], progress: Callable[[int], None]) -> int:
    """Copy to the end and return the number of bytes."""
    done = 0
    while chunk := source.read(_CHUNK):
        out.write(chunk)
        done += len(chunk)
        progress(done)
    return done


def md5_of(path: Path) -> str:
    """The checksum of a file, read in chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _check_md5(path: Path, md5: str) -> None:
    actual = md5_of(path)
    if actual != md5:
        raise UserError(
            f"{path}: expected md5 {md5}, found {actual}; the file is truncated or altered; download it again"
        )


def _copy_idx(path: Path, root: Path) -> Path:
    """Copy a .gz file of MNIST or Fashion-MNIST: both use the same file names, so the checksum decides which it is."""
    actual = md5_of(path)
    for folder, checksums in _IDX_FOLDERS.values():
        if checksums.get(path.name) == actual:
            target = root / folder / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(f"{target.name}.part")
            shutil.copyfile(path, partial)
            partial.replace(target)
            return target
    expected = " or ".join(f"{checksums[path.name]} ({name})" for name, (_, checksums) in _IDX_FOLDERS.items())
    raise UserError(
        f"{path}: expected md5 {expected}, found {actual}; the file is truncated or altered; download it again"
    )


def _extract(path: Path, folder: Path, progress: ProgressCallback) -> None:
    read = _extract_zip if path.suffix == ".zip" else _extract_tar
    broken = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
    try:
        read(path, folder, progress)
    except (*broken, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: expected a complete archive, found: {error}; it is truncated or altered; download it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path}: expected to write to {folder.parent.parent}, found: {error}; check the free disk space"
        ) from error


def _extract_tar(path: Path, folder: Path, progress: ProgressCallback) -> None:
    size = path.stat().st_size
    with path.open("rb") as packed, gzip.open(packed) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        for member in tar:
            _check_member(path, member.name, member.isfile() or member.isdir())
            tar.extract(member, folder, set_attrs=False, filter="data")
            progress(packed.tell(), size)
        while plain.read(_CHUNK):  # gzip verifies its checksum at the end of the stream
            pass


def _extract_zip(path: Path, folder: Path, progress: ProgressCallback) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        done, total = 0, sum(member.compress_size for member in members)
        for member in members:
            archive.extract(member, folder)
            done += member.compress_size
            progress(done, total)


def _check_member(path: Path, name: str, plain: bool) -> None:
    """Refuse a member that could write outside the folder on any operating system."""
    windows = PureWindowsPath(name)
    if not plain or windows.drive or windows.root or ".." in windows.parts or PurePosixPath(name).is_absolute():
        raise UserError(
            f"{path}: expected plain files and folders inside the archive, found "
            f"{f'the unsafe path {name}' if plain else f'{name}, a link or device'}; this is not the official archive; "
            "nothing was unpacked"
        )
