"""Labels without rows: the same labels, owners and splits as a full load, and no image or clip is opened."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from test_celeba import folder  # noqa: F401
from test_folder import both, tree
from test_urbansound import tree as clips

from unskew.data import Dataset, load, load_labels


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Whoever decodes a row has read too much; a folder's first image may be looked at for its format."""
    monkeypatch.setattr("unskew.data.image_folders._pixels", lambda *a, **k: pytest.fail("an image was read"))
    # By module: the package's name celeba is the function.
    monkeypatch.setattr(sys.modules["unskew.data.celeba"], "_face", lambda *a, **k: pytest.fail("a face was read"))
    monkeypatch.setattr("unskew.data.urbansound._spectrogram", lambda *a, **k: pytest.fail("a clip was read"))
    return monkeypatch


def same(whole: Dataset, labels: Dataset) -> None:
    assert (labels.name, labels.classes) == (whole.name, whole.classes)
    for one, other in ((whole.train, labels.train), (whole.test, labels.test)):
        assert one.y.tolist() == other.y.tolist()
        assert (one.group is None) == (other.group is None)
        assert one.group is None or (one.group == other.group).all()
        assert other.x[0].numel() <= 3


@pytest.mark.parametrize("make", [both, lambda root, *shape: tree(root, *shape) or root])
def test_image_folder(make: object, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "pictures"
    make(path, 4, 4, 3)  # type: ignore[operator]
    whole = load(str(path), seed=3)
    request.getfixturevalue("closed")
    same(whole, load_labels(str(path), seed=3))


def test_celeba(folder: Path, request: pytest.FixtureRequest) -> None:  # noqa: F811
    whole = load("celeba:Male", folder.parent, verify=False)
    request.getfixturevalue("closed")
    same(whole, load_labels("celeba:Male", folder.parent, verify=False))


def test_urbansound(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    clips(tmp_path)
    whole = load("urbansound8k", tmp_path, test=0.5, seed=2)
    request.getfixturevalue("closed")
    same(whole, load_labels("urbansound8k", tmp_path, test=0.5, seed=2))


def test_others_are_loaded_in_full(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((10, 3), "float32"), y=np.arange(10) % 2)
    assert load_labels("mine", tmp_path).shape == (3,)
    assert load_labels("digits").shape == (1, 8, 8)
