"""Dataset names, folders and the built-in digits; official files are read if UNSKEW_DATA has them."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from unskew.base.errors import UserError
from unskew.data import data_root, load, names


def test_digits_have_their_size_scale_and_classes_in_equal_shares() -> None:
    data = load("digits", seed=0)
    assert data.shape == (1, 8, 8)
    assert len(data.train) + len(data.test) == 1797
    assert len(data.test) == round(0.2 * 1797)
    assert data.train.x.dtype == torch.float32
    assert (float(data.train.x.min()), float(data.train.x.max())) == (0, 1)
    assert torch.equal(data.train.x * 16, (data.train.x * 16).round())
    share = torch.bincount(data.test.y) / (torch.bincount(data.test.y) + torch.bincount(data.train.y))
    assert float((share - 0.2).abs().max()) < 0.01


def test_digits_are_the_same_for_every_seed() -> None:
    one, other = load("digits", seed=1), load("digits", seed=2)
    assert torch.equal(one.test.x, other.test.x)
    assert len(load("digits", test=0.5).test) in (898, 899)


def test_common_datasets_can_be_loaded_by_name() -> None:
    wanted = {"digits", "cifar10", "cifar100", "mnist", "fashion-mnist"}
    assert (wanted | {f"emnist-{v}" for v in ("byclass", "balanced", "letters", "digits")}) <= set(names())


def test_unknown_name_suggests_the_closest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"found 'cifr10'; did you mean cifar10\? Expected hf:NAME.*cifar10"):
        load("cifr10", tmp_path)


@pytest.mark.parametrize("name", [name for name in names() if name != "digits"])
def test_missing_files_are_reported_with_a_hint(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        UserError, match=f"(?s)^{name}: expected its files under .*missing.*unskew data.*UNSKEW_DATA.*--data-dir"
    ):
        load(name, tmp_path)


def test_a_fraction_for_an_official_split_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mnist: expected no test fraction"):
        load("mnist", tmp_path, test=0.1)


def test_npz_files_are_loaded_by_path_or_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "toy.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2)
    for name in ("toy", "toy.npz", str(tmp_path / "toy.npz")):
        assert load(name, tmp_path).name == "toy"
    with pytest.raises(UserError, match=r"expected an \.npz file, found none at nowhere\.npz.*UNSKEW_DATA"):
        load("nowhere.npz", tmp_path)


def test_data_root_is_the_argument_the_variable_or_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UNSKEW_DATA", str(tmp_path / "env"))
    assert data_root(tmp_path) == tmp_path
    assert data_root(None) == tmp_path / "env"
    monkeypatch.delenv("UNSKEW_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "unskew"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache" / "unskew"


@pytest.mark.parametrize(
    ("name", "files", "sizes"),
    [
        ("cifar10", ("cifar-10-batches-bin/test_batch.bin", "cifar-10-batches-py/test_batch"), (50_000, 10_000)),
        ("mnist", ("MNIST/raw/t10k-labels-idx1-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"), (60_000, 10_000)),
    ],
)
def test_official_files_have_their_size_and_scale(name: str, files: tuple[str, ...], sizes: tuple[int, int]) -> None:
    root = os.environ.get("UNSKEW_DATA")
    if not root or not any((Path(root) / file).is_file() for file in files):
        pytest.skip(f"the folder in UNSKEW_DATA does not contain {name}")
    data = load(name, root)
    assert (len(data.train), len(data.test)) == sizes
    sample = data.prepare(data.train.x[:5000])
    assert float(sample.mean().abs()) < 0.05
    assert abs(float(sample.std()) - 1) < 0.05
