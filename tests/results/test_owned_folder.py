"""A folder belongs to its owner: files of others are never removed, replaced or joined by ours."""

from __future__ import annotations

from pathlib import Path

import pytest

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew.base.errors import UserError
from unskew.results.owned_folder import check_owner, discard, mark, read_marker

NAMES = (
    "checkpoint/bert/weights.bin",
    "model.safetensors",
    "about.json",
    "config.yaml",
    "table.csv",
    "cells/blood.csv",
)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder of somebody else, with the names that we use."""
    folder = tmp_path / "foreign"
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("of others")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("run", "quick"),
        ("run", "quick", "--resume"),
        ("compare", "quick", "--methods", "fedavg,moon"),
        ("reproduce", "fedlmd/table1", "rounds=1"),
        ("demo",),
    ],
)
def test_a_folder_of_others_is_refused_and_not_touched(words: tuple[str, ...], foreign: Path, unskew: Command) -> None:
    before = contents(foreign)
    result = unskew(*words, "--out", foreign)
    assert result.code == 2
    assert "found other files (about.json, cells, checkpoint and 3 more); nothing was changed" in result.err
    assert contents(foreign) == before


@pytest.mark.parametrize(
    "words", [("run", "quick"), ("compare", "quick", "--methods", "fedavg"), ("reproduce", "fedlmd/table1"), ("demo",)]
)
def test_an_empty_out_is_refused(
    words: tuple[str, ...], tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = unskew(*words, "--out", "")
    assert (result.code, "expected the path of a folder, found an empty text" in result.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_written_into_a_comparison(tmp_path: Path, unskew: Command) -> None:
    mark(tmp_path, "a grid of runs")
    result = unskew("run", "quick", "--out", tmp_path)
    assert (result.code, "expected the folder of a run, found that of a grid of runs" in result.err) == (2, True)


def test_new_and_empty_folders_and_marked_ones_are_accepted(tmp_path: Path) -> None:
    check_owner(tmp_path / "new", "a run")
    check_owner(tmp_path, "a run")
    mark(tmp_path, "a run", saved=True)
    (tmp_path / "more").write_text("")
    check_owner(tmp_path, "a run")
    assert read_marker(tmp_path) == {"kind": "a run", "saved": True}


def test_folders_of_earlier_versions_are_recognised_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    check_owner(tmp_path, "a run", lambda folder: (folder / "old").exists())
    with pytest.raises(UserError, match="found other files"):
        check_owner(tmp_path, "a run")


@pytest.mark.parametrize("text", ["", "3", "{}", '{"kind": 1}', "{"])
def test_a_broken_marker_is_refused_by_name(text: str, tmp_path: Path) -> None:
    (tmp_path / ".unskew.json").write_text(text)
    with pytest.raises(UserError, match=r"\.unskew\.json: expected"):
        check_owner(tmp_path, "a run")


def test_a_start_that_failed_leaves_the_folder_as_it_was(tmp_path: Path, unskew: Command) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "new"):
        assert unskew("run", "quick", "data=nowhere", "--out", folder).code == 2
        assert unskew("compare", "quick", "data=nowhere", "--methods", "fedavg", "--out", folder).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
    assert list((tmp_path / "empty").iterdir()) == []
    discard(tmp_path / "empty", created=False)
    assert (tmp_path / "empty").exists()


def test_a_grid_needs_a_manifest_of_a_run_in_a_cell(tmp_path: Path) -> None:
    manifest = tmp_path / "out" / "cells" / "x" / "checkpoint" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    (tmp_path / "out" / "table.csv").write_text("of others")
    with pytest.raises(UserError):
        us.compare("quick", methods="fedavg", seeds=0, overrides=["rounds=1"], out=tmp_path / "out")
    assert (tmp_path / "out" / "table.csv").read_text() == "of others"


def test_links_in_our_folders_are_replaced_and_not_followed(tmp_path: Path) -> None:
    for name in ("table.csv", "report.html", "model.safetensors"):
        (tmp_path / name).write_text("of others")
    settings = toys.settings(data="given", rounds=1)
    grid, run = tmp_path / "grid", tmp_path / "run"
    us.compare(us.Experiment(**settings), seeds=0, data=toys.dataset(), out=grid)
    us.run(us.Experiment(**settings), data=toys.dataset(), out=run)
    for link in (grid / "table.csv", grid / "report.html", run / "model.safetensors"):
        link.unlink()
        link.symlink_to(tmp_path / link.name)
    us.compare(us.Experiment(**settings), seeds=0, data=toys.dataset(), out=grid)
    longer = us.Experiment(**(settings | {"rounds": 2}))
    with pytest.raises(UserError):  # the finished model was changed
        us.load(run)
    us.run(longer, data=toys.dataset(), out=run)
    names = ("table.csv", "report.html", "model.safetensors")
    assert {(tmp_path / name).read_text() for name in names} == {"of others"}
    assert not (run / "model.safetensors").is_symlink()
