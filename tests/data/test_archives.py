"""Archives: unpacked where the readers look, refused if unsafe, broken or unknown, downloaded from a local server."""

import gzip
import hashlib
import io
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unskew.base.errors import UserError
from unskew.data import archives
from unskew.data.archives import ARCHIVES, RemoteFile, download_dataset, download_file, remote_files, unpack

MEMBERS = {
    "cifar-10-python.tar.gz": ("cifar-10-batches-py/test_batch", "cifar-10-batches-py/test_batch"),
    "cifar-100-binary.tar.gz": ("cifar-100-binary/test.bin", "cifar-100-binary/test.bin"),
    "CINIC-10.tar.gz": ("./train/cat/a.png", "CINIC-10/train/cat/a.png"),
    "UCI HAR Dataset.zip": ("UCI HAR Dataset/train/y_train.txt", "UCI HAR Dataset/train/y_train.txt"),
    "UrbanSound8K.tar.gz": ("UrbanSound8K/metadata/UrbanSound8K.csv", "UrbanSound8K/metadata/UrbanSound8K.csv"),
    "gzip.zip": (
        "gzip/emnist-letters-train-labels-idx1-ubyte.gz",
        "EMNIST/raw/gzip/emnist-letters-train-labels-idx1-ubyte.gz",
    ),
}


def make_tar(*members: str | tarfile.TarInfo, content: bytes = b"content") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for member in members:
            info = tarfile.TarInfo(member) if isinstance(member, str) else member
            info.size = len(content) if info.isfile() else 0
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def make_zip(*members: str | zipfile.ZipInfo) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member in members:
            archive.writestr(member, b"content")
    return out.getvalue()


def write(path: Path, *members: str) -> Path:
    path.write_bytes(make_zip(*members) if path.suffix == ".zip" else make_tar(*members))
    return path


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


@pytest.mark.parametrize("name", MEMBERS)
def test_archives_are_unpacked_where_readers_look(tmp_path: Path, name: str) -> None:
    inside, place = MEMBERS[name]
    root = tmp_path / "data"
    steps: list[int] = []
    unpack(write(tmp_path / name, inside), root, lambda done, total: steps.append(done), verify=False)
    assert (root / place).read_bytes() == b"content"
    assert entries(root) == [place.split("/")[0]]
    assert steps
    with pytest.raises(UserError, match=r"expected to create .*, found that it already exists; delete or rename"):
        unpack(tmp_path / name, root, verify=False)


def test_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py/test_batch")
    with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz: expected md5 c58f30108f718f92721af3b95e74349a"):
        unpack(path, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def tar_member(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_symlink(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


UNSAFE = {
    "absolute.tar": make_tar("good", "/tmp/unskew-evil"),
    "parent.tar": make_tar("good", "a/../../evil"),
    "symlink.tar": make_tar(tar_member("a", tarfile.SYMTYPE, "/etc")),
    "hardlink.tar": make_tar("good", tar_member("a", tarfile.LNKTYPE, "good")),
    "device.tar": make_tar(tar_member("a", tarfile.CHRTYPE)),
    "pipe.tar": make_tar(tar_member("a", tarfile.FIFOTYPE)),
    "backslash.tar": make_tar("..\\evil"),
    "absolute.zip": make_zip("good", "/unskew-evil"),
    "parent.zip": make_zip("good", "../evil"),
    "drive.zip": make_zip("C:\\evil"),
    "symlink.zip": make_zip(zip_symlink("a")),
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_unsafe_members_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("UCI HAR Dataset.zip" if kind.endswith("zip") else "CINIC-10.tar.gz")
    path.write_bytes(UNSAFE[kind])
    root = tmp_path / "in" / "data"
    with pytest.raises(UserError, match="expected plain files and folders inside the archive"):
        unpack(path, root)
    assert entries(root) == []
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("name", ["CINIC-10.tar.gz", "UCI HAR Dataset.zip"])
@pytest.mark.parametrize("keep", [0, 10, 0.5, -9, -4])
def test_truncated_archive_is_refused(tmp_path: Path, name: str, keep: float) -> None:
    path = write(tmp_path / name, *(f"train/{i}" for i in range(50)))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if keep == 0.5 else int(keep)])
    with pytest.raises(UserError, match="expected a complete archive"):
        unpack(path, tmp_path / "data")
    assert entries(tmp_path / "data") == []


def test_altered_archive_is_refused(tmp_path: Path) -> None:
    """One wrong byte in the archive's own checksum, after the last member."""
    path = write(tmp_path / "CINIC-10.tar.gz", "train/a")
    data = bytearray(path.read_bytes())
    data[-6] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match="expected a complete archive"):
        unpack(path, tmp_path / "data")


def test_unknown_and_missing_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did you mean cifar-10-python\.tar\.gz\?"):
        unpack(write(tmp_path / "cifar-10-pyton.tar.gz", "a"), tmp_path)
    with pytest.raises(UserError, match="found no such file"):
        unpack(tmp_path / "gzip.zip", tmp_path)


FILE = "t10k-labels-idx1-ubyte.gz"
CONTENT = {name: gzip.compress(name.encode(), mtime=0) for name in ("mnist", "fashion-mnist")}


@pytest.fixture
def _small_idx(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"mnist": "MNIST/raw", "fashion-mnist": "FashionMNIST/raw"}
    table = {n: (p, {FILE: hashlib.md5(CONTENT[n]).hexdigest()}) for n, p in places.items()}
    monkeypatch.setattr(archives, "_IDX_FOLDERS", table)


@pytest.mark.usefixtures("_small_idx")
def test_idx_files_are_recognised_by_checksum(tmp_path: Path) -> None:
    for name, place in (("mnist", "MNIST/raw"), ("fashion-mnist", "FashionMNIST/raw")):
        (tmp_path / FILE).write_bytes(CONTENT[name])
        assert unpack(tmp_path / FILE, tmp_path) == tmp_path / place / FILE
    (tmp_path / FILE).write_bytes(b"other")
    with pytest.raises(UserError, match=r"expected md5 .* \(mnist\) or .* \(fashion-mnist\), found"):
        unpack(tmp_path / FILE, tmp_path)


class Server(ThreadingHTTPServer):
    """Responds with `body` and a Content-Length of `length`."""

    body = b""
    length: int | None = None
    requests = 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        server.requests += 1
        if self.path.startswith("/gone"):
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(server.body) if server.length is None else server.length))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, *args: object) -> None:
        """Print nothing to standard error."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def remote(server: Server, name: str, content: bytes) -> RemoteFile:
    return RemoteFile(f"http://127.0.0.1:{server.server_port}/{name}", hashlib.md5(content).hexdigest())


def test_a_download_reports_progress_and_leaves_one_file(server: Server, tmp_path: Path) -> None:
    server.body = b"x" * 3_000_000
    steps: list[tuple[int, int | None]] = []
    file = download_file(remote(server, "a.bin", server.body), tmp_path, lambda *step: steps.append(step))
    assert file.read_bytes() == server.body
    assert steps[-1] == (3_000_000, 3_000_000)
    assert entries(tmp_path) == ["a.bin"]


def test_truncated_wrong_and_missing_downloads_are_refused(server: Server, tmp_path: Path) -> None:
    server.body, server.length = b"x" * 100, 200
    with pytest.raises(
        UserError, match=r"expected 200 bytes, found 100; try again, or download http://.*a\.bin yourself"
    ):
        download_file(remote(server, "a.bin", server.body), tmp_path)
    server.length = None
    with pytest.raises(UserError, match="expected md5"):
        download_file(remote(server, "a.bin", b"other"), tmp_path)
    with pytest.raises(UserError, match=r"404.*download http://.* yourself"):
        download_file(remote(server, "gone", b""), tmp_path)
    assert entries(tmp_path) == []


def test_an_unreachable_server_is_reported_with_manual_steps(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"http://127\.0\.0\.1:1/a\.bin: expected a download.*unskew data unpack a\.bin"
    ):
        download_file(RemoteFile("http://127.0.0.1:1/a.bin", "0" * 32), tmp_path)


def test_an_archive_is_downloaded_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "cifar-10-binary.tar.gz"
    server.body = make_tar("cifar-10-batches-bin/test_batch.bin")
    local = remote(server, name, server.body)
    monkeypatch.setitem(ARCHIVES, name, replace(ARCHIVES[name], url=local.url, md5=local.md5))
    assert download_dataset("cifar10", tmp_path) == [tmp_path / "cifar-10-batches-bin"]
    assert download_dataset("cifar10", tmp_path) == []
    assert (server.requests, entries(tmp_path)) == (1, ["cifar-10-batches-bin"])


@pytest.mark.usefixtures("_small_idx")
def test_idx_files_are_downloaded_and_broken_ones_replaced(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(archives._MIRRORS, "mnist", f"http://127.0.0.1:{server.server_port}/")
    server.body = CONTENT["mnist"]
    assert download_dataset("mnist", tmp_path) == [tmp_path / "MNIST/raw" / FILE]
    assert download_dataset("mnist", tmp_path) == []
    (tmp_path / "MNIST/raw" / FILE).write_bytes(b"broken")
    assert download_dataset("mnist", tmp_path) == [tmp_path / "MNIST/raw" / FILE]


def test_only_datasets_with_an_official_address_can_be_downloaded(tmp_path: Path) -> None:
    assert {"cifar10", "cifar100", "mnist", "fashion-mnist", "emnist", "urbansound8k"} == set(remote_files())
    assert [len(remote_files()[name]) for name in ("mnist", "fashion-mnist", "cifar10")] == [4, 4, 1]
    with pytest.raises(UserError, match=r"found 'celeba'; expected a dataset that can be downloaded"):
        download_dataset("celeba", tmp_path)
