"""Official archives into the data folder: fetched, checked, and unpacked where the readers look for them.

Nothing is ever half there: files are written beside their place under another name and renamed when complete.
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

from unskew.base.errors import UserError, nearest
from unskew.data.mnist_idx import _MD5_FASHION, _MD5_MNIST  # the one list of these checksums

Step: TypeAlias = Callable[[int, int | None], None]  # bytes done, bytes in all if known
TIMEOUT = 60.0  # seconds without an answer
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """One official archive: what it holds, where that belongs, and its checksum, None where none is published.

    top: the folder inside that is wanted, or "" for everything; top is also looked past when the archive lacks it.
    """

    dataset: str
    top: str
    place: str
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
_IDX_PLACES = {"mnist": ("MNIST/raw", _MD5_MNIST), "fashion-mnist": ("FashionMNIST/raw", _MD5_FASHION)}
_MIRRORS = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
}


@dataclass(frozen=True)
class RemoteFile:
    """A file to fetch, with the checksum it must have."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def remotes() -> dict[str, tuple[RemoteFile, ...]]:
    """The files to fetch for each dataset that has an official address."""
    found: dict[str, tuple[RemoteFile, ...]] = {
        a.dataset: (RemoteFile(a.url, a.md5),) for a in ARCHIVES.values() if a.url and a.md5
    }
    for name, address in _MIRRORS.items():
        files = {file: md5 for file, md5 in _IDX_PLACES[name][1].items() if file.endswith(".gz")}
        found[name] = tuple(RemoteFile(address + file, md5) for file, md5 in files.items())
    return found


def unpack(path: Path, root: Path, step: Step = lambda done, total: None, *, verify: bool = True) -> Path:
    """Unpack one official archive, known by its file name, into the data folder; returns what is now there."""
    if not path.is_file():
        raise UserError(f"{path}: expected an archive, found no such file; check the path")
    if path.name in _MD5_MNIST and path.suffix == ".gz":
        return _place_idx(path, root)
    if path.name not in ARCHIVES:
        raise UserError(
            f"{path}: expected one of {', '.join(ARCHIVES)} or a .gz file of MNIST or Fashion-MNIST, "
            f"found {path.name}{nearest(path.name, ARCHIVES)}; rename it if it is one of these"
        )
    archive = ARCHIVES[path.name]
    place = root / archive.place
    if place.exists():
        raise UserError(f"{path}: expected no {place} yet, found one; delete or rename it to unpack again")
    if verify and archive.md5 is not None:
        _check_md5(path, archive.md5)
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=root, prefix=".unpack-") as folder:
        inside = Path(folder) / "content"
        inside.mkdir()
        _extract(path, inside, step)
        content = inside / archive.top if (inside / archive.top).is_dir() else inside
        if archive.md5 is None and not (content / "train").is_dir():  # no checksum: at least the right shape
            raise UserError(
                f"{path}: expected an archive with the folder train, found none; it is not the official one"
            )
        os.replace(content, place)
    return place


def fetch(name: str, root: Path, step: Callable[[str], Step] = lambda file: lambda done, total: None) -> list[Path]:
    """Download and unpack a dataset that has an official address; returns what is new in the data folder."""
    known = remotes()
    dataset = "emnist" if name.startswith("emnist-") else name
    if dataset not in known:
        raise UserError(
            f"expected a dataset with an address to fetch from, among {', '.join(sorted(known))}, found {name}"
            f"{nearest(name, known)}; for others, `unskew data` says how to get them"
        )
    wanted = [remote for remote in known[dataset] if not _have(dataset, remote, root)]
    root.mkdir(parents=True, exist_ok=True)
    new = []
    with TemporaryDirectory(dir=root, prefix=".download-") as folder:
        for remote in wanted:
            file = download(remote, Path(folder), step(remote.name))
            new.append(unpack(file, root, step(remote.name), verify=False))  # checked a moment ago
            file.unlink()
    return new


def _have(dataset: str, remote: RemoteFile, root: Path) -> bool:
    """Whether this file's content is there already, told before anything large is fetched."""
    if dataset in _IDX_PLACES:
        target = root / _IDX_PLACES[dataset][0] / remote.name
        return target.is_file() and md5_of(target) == remote.md5
    return (root / ARCHIVES[remote.name].place).exists()


def download(remote: RemoteFile, folder: Path, step: Step = lambda done, total: None) -> Path:
    """Fetch one file into a folder, under its own name only when whole and of the right checksum."""
    target, part = folder / remote.name, folder / f"{remote.name}.part"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        try:
            with urllib.request.urlopen(remote.url, timeout=TIMEOUT) as answer, part.open("wb") as out:
                length = answer.headers.get("Content-Length")
                total = int(length) if length and length.isdecimal() else None
                done = _copy(answer, out, lambda done: step(done, total))
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            raise UserError(f"{remote.url}: expected an answer, found: {error}; {_by_hand(remote)}") from error
        if total is not None and done != total:
            raise UserError(f"{remote.url}: expected {total} bytes, found {done}; try again, or {_by_hand(remote)}")
        _check_md5(part, remote.md5)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _by_hand(remote: RemoteFile) -> str:
    return f"fetch {remote.url} by hand (md5 {remote.md5}) and type: unskew data unpack {remote.name}"


def _copy(source: IO[bytes], out: IO[bytes], step: Callable[[int], None]) -> int:
    """Copy to the end and count the bytes."""
    done = 0
    while chunk := source.read(_CHUNK):
        out.write(chunk)
        done += len(chunk)
        step(done)
    return done


def md5_of(path: Path) -> str:
    """The checksum of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _check_md5(path: Path, md5: str) -> None:
    found = md5_of(path)
    if found != md5:
        raise UserError(
            f"{path}: expected md5 {md5}, found {found}; the file is truncated or altered; download it again"
        )


def _place_idx(path: Path, root: Path) -> Path:
    """Copy a .gz file of MNIST or Fashion-MNIST, which share their names and are told apart by checksum."""
    found = md5_of(path)
    for place, known in _IDX_PLACES.values():
        if known.get(path.name) == found:
            target = root / place / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f"{target.name}.part")
            shutil.copyfile(path, part)
            part.replace(target)
            return target
    wanted = ", ".join(f"{known[path.name]} ({name})" for name, (_, known) in _IDX_PLACES.items())
    raise UserError(
        f"{path}: expected md5 {wanted}, found {found}; the file is truncated or altered; download it again"
    )


def _extract(path: Path, folder: Path, step: Step) -> None:
    read = _extract_zip if path.suffix == ".zip" else _extract_tar
    broken = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError)
    try:
        read(path, folder, step)
    except (*broken, gzip.BadGzipFile) as error:
        raise UserError(
            f"{path}: expected a complete archive, found: {error}; it is truncated or altered; download it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path}: expected to write under {folder.parent.parent}, found: {error}; free space"
        ) from error


def _extract_tar(path: Path, folder: Path, step: Step) -> None:
    size = path.stat().st_size
    with path.open("rb") as packed, gzip.open(packed) as plain, tarfile.open(fileobj=plain, mode="r|") as tar:
        for member in tar:
            _check_member(path, member.name, member.isfile() or member.isdir())
            tar.extract(member, folder, set_attrs=False, filter="data")
            step(packed.tell(), size)
        while plain.read(_CHUNK):  # to the end, where gzip keeps the checksum of it all
            pass


def _extract_zip(path: Path, folder: Path, step: Step) -> None:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
        done, total = 0, sum(member.compress_size for member in members)
        for member in members:
            archive.extract(member, folder)
            done += member.compress_size
            step(done, total)


def _check_member(path: Path, name: str, plain: bool) -> None:
    """Refuse what could write outside the folder, on any system."""
    windows = PureWindowsPath(name)
    if not plain or windows.drive or windows.root or ".." in windows.parts or PurePosixPath(name).is_absolute():
        raise UserError(
            f"{path}: expected plain files and folders inside the archive, found "
            f"{name if plain else f'{name}, a link or device'}; this is not the official archive; nothing was unpacked"
        )
