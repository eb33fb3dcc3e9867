"""Mistakes that surface when files are read: exit code 2, one message, no traceback, and no folder left behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from runner import toys
from runner.conftest import Command

from .test_run_command import refused

X, Y = toys.arrays()
ARRAYS: dict[str, tuple[dict[str, np.ndarray], list[str]]] = {
    "rows without labels": ({"x": X, "y": Y[:-1]}, ["60 rows in x", "59 labels in y"]),
    "groups for some rows": ({"x": X, "y": Y, "group": Y[:7]}, ["group of shape [7]"]),
    "split for some rows": ({"x": X, "y": Y, "split": Y[:7] > 0}, ["expected split of shape [60]", "[7]"]),
    "label without a class": ({"x": X, "y": Y, "classes": np.array(["a", "b"])}, ["labels from 0 to 1", "found 2"]),
    "label below the first class": ({"x": X, "y": Y - 1}, ["counted from 0", "found -1"]),
    "name without a class": (
        {"x": X, "y": np.array(["a", "b", "c"])[Y], "classes": np.array(["a", "b"])},
        ["among the classes a, b", "found c"],
    ),
    "labels that are fractions": ({"x": X, "y": Y + 0.5}, ["y as integers or strings", "float64"]),
    "no labels at all": ({"x": X}, ["expected the keys x and y", "found x"]),
    "not a number among the rows": ({"x": np.where(X > 3, np.nan, X), "y": Y}, ["expected finite numbers"]),
    "no row for any client": ({"x": X, "y": Y, "split": np.ones(60, int)}, ["train split", "at least one row"]),
    "no row to test": ({"x": X, "y": Y, "split": np.zeros(60, int)}, ["test split", "at least one row"]),
    "no rows": ({"x": X[:0], "y": Y[:0]}, ["expected y of shape [N]"]),
}


@pytest.mark.parametrize("mistake", ARRAYS)
def test_arrays_that_do_not_fit_are_refused(mistake: str, recipe: Path, tmp_path: Path, unskew: Command) -> None:
    arrays, words = ARRAYS[mistake]
    np.savez(tmp_path / "rows.npz", **arrays)
    refused(unskew("run", recipe, "--out", tmp_path / "run"), "data.name: ", *words)
    assert not (tmp_path / "run").exists()


FILES = {
    "missing": (lambda path: path.unlink(), ["expected an .npz file, found none at"]),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:-100]), ["truncated"]),
    "empty": (lambda path: path.write_bytes(b""), ["truncated"]),
    "damaged": (
        lambda path: path.write_bytes(path.read_bytes().replace(b"NUMPY", b"DUMMY")),
        ["could not read x", "check that the file is complete"],
    ),
}


@pytest.mark.parametrize("damage", FILES)
def test_damaged_data_file_is_refused_by_name(damage: str, recipe: Path, tmp_path: Path, unskew: Command) -> None:
    spoil, words = FILES[damage]
    spoil(tmp_path / "rows.npz")
    refused(unskew("run", recipe, "--out", tmp_path / "run"), str(tmp_path / "rows.npz"), *words)
    assert not (tmp_path / "run").exists()


def test_wrong_checksum_is_refused_by_name(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    """A file in the right place with other bytes, of the official size or not."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(b"other bytes")
    result = unskew("run", recipe, "data=cifar10", "--data-dir", tmp_path, "--out", tmp_path / "run")
    refused(result, str(folder / "data_batch_1"), "expected md5", "download it again")
    assert not (tmp_path / "run").exists()


UNFIT = {
    "images wanted": (["model=cnn"], ["model=mlp, which takes rows of any shape"]),
    "crop of rows": (["data.augment.crop=2"], ["data.augment: expected images", "(6,)"]),
    "cutout for good": (
        ["data.augment={cutout: 4, frozen: true}"],
        ["data.augment: ", "expected no cutout with frozen or test"],
    ),
    "shards that do not come out": (
        ["partition={name: shards, clients: 50, per_client: 2}"],
        ["partition: ", "48 or 51"],
    ),
    "a number for a list": (["record.rounds=1"], ["record.rounds: expected a list such as [1], found 1"]),
    "rounds that never come": (["record.rounds=[99]"], ["record.rounds: expected rounds in 1..", "found [99]"]),
    "groups that are not there": (["partition=group"], ["group"]),
    "held-out rows that are not there": (["stop={metric: validation/loss, patience: 2}"], ["data.validation=0.1"]),
}


@pytest.mark.parametrize("mistake", UNFIT)
def test_settings_that_the_data_do_not_allow_are_refused(
    mistake: str, recipe: Path, tmp_path: Path, unskew: Command
) -> None:
    overrides, words = UNFIT[mistake]
    refused(unskew("run", recipe, *overrides, "--out", tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folder_of_another_experiment_is_refused_and_unchanged(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", recipe, "--out", tmp_path / "run").code == 0
    before = contents(tmp_path / "run")
    refused(unskew("run", recipe, "--out", tmp_path / "run"), "already holds this run, finished", "add --resume")
    result = unskew("run", recipe, "local.lr=0.2", "--out", tmp_path / "run", "--resume")
    refused(result, "local.lr was 0.05, is now 0.2", "choose another --out")
    assert contents(tmp_path / "run") == before


def test_folder_of_another_version_is_refused_and_unchanged(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", recipe, "--out", tmp_path / "run").code == 0
    path = tmp_path / "run" / "checkpoint" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    before = contents(tmp_path / "run")
    refused(unskew("run", recipe, "--out", tmp_path / "run", "--resume"), str(path), "expected format 2, found 99")
    refused(unskew("export", tmp_path / "run"), str(path), "expected format 2, found 99")
    assert contents(tmp_path / "run") == before


def test_folder_with_a_key_of_another_version_is_refused(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", recipe, "--out", tmp_path / "run").code == 0
    path = tmp_path / "run" / "config.yaml"
    path.write_text(path.read_text() + "colour: green\n")
    refused(unskew("run", recipe, "--out", tmp_path / "run", "--resume"), str(path), "unknown key colour")
