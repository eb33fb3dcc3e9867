"""Errors of `unskew reproduce` that are reported before anything is run."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from runner.conftest import Command

from .conftest import SMALL, InProcessPool

ONE = ("--only", "cifar10-0.05", "--methods", "fedavg,fedlmd", "--seeds", "0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--only", "cifar10-5"],
            "--only: found 'cifar10-5'; did you mean cifar10-0.5? Expected columns among ",
        ),
        (["--only", "fedavg"], "found 'fedavg'"),
        (["--methods", " , "], "--methods: expected names separated by commas"),
        (["--methods", "fedavgg"], "did you mean fedavg?"),
        (["--preset", "release"], "found 'release'; did you mean released? Expected one of paper, released, fitted"),
        (["--draws", "x"], "--draws: expected numbers"),
        (["--draws", "-1"], "--draws: expected numbers and ranges such as 0,1,2 or 0-4, found '-1'"),
        (["--draws", "1,1"], "--draws: expected each number once, found '1,1'"),
        (["--seeds", "x"], "--seeds: expected numbers and ranges such as 0,1,2 or 0-4, found 'x'"),
        (["--seeds", "0,0"], "--seeds: expected each number once"),
        (["--rounds", "0"], "--rounds"),
        (["--record", "a file"], "--record: expected a folder, found the file a file"),
        (["--record", "a file/in it"], "--record: expected a folder, found the file a file"),
        (["--out", "a file"], "a file: expected a folder, found a file; choose another --out"),
        (["--draws", "1", "partition.seed=2"], "given twice"),
        (["seed=1"], "type --seeds 0,1"),
        (["method=fedavg"], "type --methods"),
        (["preset=released"], "type --preset paper"),
        (["rules=released"], "type --preset paper"),
        (["roundz=1"], "roundz"),
    ],
)
def test_invalid_options_are_refused(words: list[str], message: str, pool: InProcessPool, unskew: Command) -> None:
    Path("a file").touch()
    result = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *words)
    assert result.code == 2
    assert message in result.err
    assert pool.completed == []


def test_an_unwritable_folder_is_refused_before_anything_is_run(
    pool: InProcessPool, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only file system; file permissions would not stop the superuser."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("unskew.reproductions.preflight.tempfile.TemporaryFile", refuse)
    for option in ("--record", "--out"):
        result = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, option, "kept")
        assert (result.code, pool.completed) == (2, [])
        assert "is not writable" in result.err
        assert "Read-only file system" in result.err
        assert "free some space" not in result.err


def test_a_record_with_other_columns_is_refused_before_anything_is_run(
    pool: InProcessPool, unskew: Command, tmp_path: Path
) -> None:
    (tmp_path / "kept" / "fedlmd").mkdir(parents=True)
    (tmp_path / "kept" / "fedlmd" / "accuracy.csv").write_text("method,accuracy\nfedavg,33\n")
    result = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--record", "kept")
    assert (result.code, pool.completed) == (2, [])
    assert "found method,accuracy; move the file away" in result.err


def test_the_list_takes_no_options(unskew: Command) -> None:
    for words in (("--preset", "released"), ("--recorded", "results"), ("--seeds", "0")):
        result = unskew("reproduce", *words)
        assert result.code == 2, words
        assert "before these options, found none; `unskew reproduce` alone lists all of them" in result.err, words
