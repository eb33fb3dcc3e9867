"""`unskew data` in this process."""

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
def test_list_shows_the_state_and_terms_of_every_dataset(words: list[str], tmp_path: Path, unskew: Command) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 1, 0]))
    (tmp_path / "cifar-100-binary").mkdir()
    (tmp_path / "cifar-100-binary/train.bin").write_bytes(b"")
    result = unskew(*words, tmp_path)
    assert result.code == 0
    lines = {line.split()[0]: line.split() for line in result.out.splitlines()[::-1] if line.strip()}
    assert lines["digits"][1] == lines["mine"][1] == "present"
    assert lines["mnist"][1] == "absent"
    assert lines["cifar100"][1] == "broken:"
    for word in (
        str(tmp_path),
        "cifar-100-binary/test.bin",
        "unskew data download",
        "CC BY-NC",
        "no checksum known",
        "hf:",
    ):
        assert word in result.out


def test_data_dir_may_come_before_or_after_the_subcommand(tmp_path: Path, unskew: Command) -> None:
    assert unskew("data", "--data-dir", tmp_path, "list").out == unskew("data", "list", "--data-dir", tmp_path).out


def test_check_reports_every_dataset_and_fails_if_one_is_broken(tmp_path: Path, unskew: Command) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2)
    result = unskew("data", "check", "--data-dir", tmp_path)
    assert result.code == 0
    assert "mine: ok, 16 + 4 rows of 2, 2 classes (no checksum known)" in result.out
    assert "digits: ok" in result.out
    (tmp_path / "torn.npz").write_bytes(b"PK")
    result = unskew("data", "check", "--data-dir", tmp_path)
    assert result.code == 2
    assert "torn: broken: " in result.out
    assert "digits: ok" in result.out, "one broken dataset does not hide the others"
    assert "broken datasets: torn" in result.err


def test_check_with_a_name_checks_that_dataset_only(tmp_path: Path, unskew: Command) -> None:
    assert unskew("data", "check", "digits", "--data-dir", tmp_path).out.count("\n") == 1
    result = unskew("data", "check", "mnist", "--data-dir", tmp_path)
    assert result.code == 2
    assert "found no complete copy" in result.out


def test_unpack_extracts_archives_into_the_dataset_folder(tmp_path: Path, unskew: Command) -> None:
    root = tmp_path / "data"
    one = archive(tmp_path / "CINIC-10.tar.gz", "train/cat/a.png")
    two = archive(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py/test_batch")
    result = unskew("data", "unpack", one, two, "--data-dir", root, "--no-verify")
    assert result.code == 0
    assert f"CINIC-10.tar.gz: unpacked to {root / 'CINIC-10'} (no checksum known)" in result.out
    assert "(checksum not compared)" in result.out
    assert (root / "CINIC-10/train/cat/a.png").read_bytes() == b"abc"


def test_unpack_refuses_a_wrong_checksum(tmp_path: Path, unskew: Command) -> None:
    result = unskew(
        "data", "unpack", archive(tmp_path / "cifar-10-python.tar.gz", "a"), "--data-dir", tmp_path / "data"
    )
    assert result.code == 2
    assert "expected md5 c58f30108f718f92721af3b95e74349a" in result.err
    assert "Traceback" not in result.err


def test_download_without_network_prints_the_address(
    tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unskew.data import archives

    monkeypatch.setitem(archives._MIRRORS, "mnist", "http://127.0.0.1:1/")
    result = unskew("data", "download", "mnist", "--data-dir", tmp_path)
    assert result.code == 2
    assert "download http://127.0.0.1:1/train-images-idx3-ubyte.gz yourself" in result.err
    assert list(tmp_path.iterdir()) == []
    assert unskew("data", "download", "nonsense", "--data-dir", tmp_path).code == 2
