"""`unskew data` as a person types it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from runner.conftest import Command


def archive(path: Path, member: str) -> Path:
    with tarfile.open(path, "w:gz") as out:
        info = tarfile.TarInfo(member)
        info.size = 3
        out.addfile(info, io.BytesIO(b"abc"))
    return path


@pytest.mark.parametrize("words", [["data", "--data-dir"], ["data", "list", "--data-dir"]])
def test_list(words: list[str], tmp_path: Path, unskew: Command) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 1, 0]))
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary/train.bin").write_bytes(b"")
    said = unskew(*words, tmp_path)
    assert said.code == 0
    lines = {line.split()[0]: line.split() for line in said.out.splitlines()[::-1] if line.strip()}
    assert lines["digits"][1] == lines["mine"][1] == "present"
    assert lines["mnist"][1] == "absent"
    assert lines["cifar100"][1] == "broken:"
    for word in (
        str(tmp_path),
        "cifar-100-binary/test.bin",
        "unskew data download",
        "CC BY-NC",
        "no digest known",
        "hf:",
    ):
        assert word in said.out


def test_folder_before_or_after_the_sub_command(tmp_path: Path, unskew: Command) -> None:
    assert unskew("data", "--data-dir", tmp_path, "list").out == unskew("data", "list", "--data-dir", tmp_path).out


def test_check(tmp_path: Path, unskew: Command) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2)
    said = unskew("data", "check", "--data-dir", tmp_path)
    assert said.code == 0
    assert "mine: sound, 16 + 4 rows of 2, 2 classes (no digest known)" in said.out
    assert "digits: sound" in said.out
    (tmp_path / "torn.npz").write_bytes(b"PK")
    said = unskew("data", "check", "--data-dir", tmp_path)
    assert said.code == 2
    assert "torn: broken: " in said.out
    assert "digits: sound" in said.out, "one broken dataset does not hide the others"
    assert "found torn not to be" in said.err


def test_check_one(tmp_path: Path, unskew: Command) -> None:
    assert unskew("data", "check", "digits", "--data-dir", tmp_path).out.count("\n") == 1
    said = unskew("data", "check", "mnist", "--data-dir", tmp_path)
    assert said.code == 2
    assert "looked for" in said.out


def test_unpack(tmp_path: Path, unskew: Command) -> None:
    root = tmp_path / "data"
    one = archive(tmp_path / "CINIC-10.tar.gz", "train/cat/a.png")
    two = archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py/test_batch")
    said = unskew("data", "unpack", one, two, "--data-dir", root, "--no-verify")
    assert said.code == 0
    assert f"CINIC-10.tar.gz: now in {root / 'CINIC-10'} (no checksum is known for it)" in said.out
    assert "(checksum not compared)" in said.out
    assert (root / "CINIC-10/train/cat/a.png").read_bytes() == b"abc"


def test_unpack_refuses_kindly(tmp_path: Path, unskew: Command) -> None:
    said = unskew("data", "unpack", archive(tmp_path / "cifar-10-python.tar.gz", "a"), "--data-dir", tmp_path / "data")
    assert said.code == 2
    assert "expected md5 c58f30108f718f92721af3b95e74349a" in said.err
    assert "Traceback" not in said.err


def test_download_without_network(tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from unskew.data import archives

    monkeypatch.setitem(archives._MIRRORS, "mnist", "http://127.0.0.1:1/")
    said = unskew("data", "download", "mnist", "--data-dir", tmp_path)
    assert said.code == 2
    assert "fetch http://127.0.0.1:1/train-images-idx3-ubyte.gz by hand" in said.err
    assert list(tmp_path.iterdir()) == []
    assert unskew("data", "download", "nonsense", "--data-dir", tmp_path).code == 2
