"""What `unskew reproduce` refuses, before anything is played."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from runner.conftest import Command

from .conftest import SMALL, Player

ONE = ("--only", "cifar10-0.05", "--methods", "fedavg,fedlmd", "--seeds", "0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--only", "cifar10-5"], "--only: expected columns among cifar10-0.05, cifar10-0.1, "),
        (["--only", "fedavg"], "found 'fedavg'"),
        (["--methods", " , "], "--methods: expected names with commas between them"),
        (["--methods", "fedavgg"], "did you mean fedavg?"),
        (["--preset", "release"], "expected one of paper, released, found 'release'; did you mean released?"),
        (["--draws", "x"], "--draws: expected numbers"),
        (["--draws", "-1"], "--draws: expected numbers and ranges such as 0,1,2 or 0-4, found '-1'"),
        (["--draws", "1,1"], "--draws: expected every number once, found '1,1'"),
        (["--seeds", "x"], "--seeds: expected numbers and ranges such as 0,1,2 or 0-4, found 'x'"),
        (["--seeds", "0,0"], "--seeds: expected every number once"),
        (["--rounds", "0"], "--rounds"),
        (["--record", "a file"], "--record: expected a folder, found the file a file"),
        (["--record", "a file/in it"], "--record: expected a folder, found the file a file"),
        (["--out", "a file"], "--out: expected a folder, found the file a file"),
        (["--draws", "1", "partition.seed=2"], "given twice"),
        (["seed=1"], "type --seeds 0,1"),
        (["method=fedavg"], "type --methods"),
        (["preset=released"], "type --preset paper"),
        (["roundz=1"], "roundz"),
    ],
)
def test_mistakes_say_what_there_is(words: list[str], told: str, player: Player, unskew: Command) -> None:
    Path("a file").touch()
    said = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *words)
    assert said.code == 2
    assert told in said.err
    assert player.played == []


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_played(
    player: Player, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is read only; a mode would not stop the superuser."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("unskew.reproduce.preflight.tempfile.TemporaryFile", refuse)
    for option in ("--record", "--out"):
        said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, option, "kept")
        assert (said.code, player.played) == (2, [])
        assert "cannot be written to" in said.err
        assert "Read-only file system" in said.err
        assert "free some space" not in said.err


def test_a_record_with_other_columns_is_told_before_anything_is_played(
    player: Player, unskew: Command, tmp_path: Path
) -> None:
    (tmp_path / "kept" / "fedlmd").mkdir(parents=True)
    (tmp_path / "kept" / "fedlmd" / "accuracy.csv").write_text("method,accuracy\nfedavg,33\n")
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--record", "kept")
    assert (said.code, player.played) == (2, [])
    assert "found method,accuracy; move it away" in said.err


def test_the_list_takes_no_options(unskew: Command) -> None:
    for words in (("--preset", "released"), ("--recorded", "results"), ("--seeds", "0")):
        said = unskew("reproduce", *words)
        assert (said.code, "the list takes none" in said.err) == (2, True), words
