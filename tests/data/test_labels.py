"""Labels without rows: the same labels, groups and splits as a full load, without opening an image or a clip."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from test_celeba import folder  # noqa: F401
from test_image_folders import write_classes, write_splits
from test_urbansound import write_dataset as write_clips

from unskew.data import Dataset, load, load_labels


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Decoding a row fails the test; opening a folder's first image to get its format does not."""
    monkeypatch.setattr("unskew.data.image_folders._pixels", lambda *a, **k: pytest.fail("an image was read"))
    # Through sys.modules, because `unskew.data.celeba` is the function.
    monkeypatch.setattr(sys.modules["unskew.data.celeba"], "_face", lambda *a, **k: pytest.fail("a face was read"))
    monkeypatch.setattr("unskew.data.urbansound._spectrogram", lambda *a, **k: pytest.fail("a clip was read"))
    return monkeypatch


def check_same_labels(full: Dataset, labels: Dataset) -> None:
    assert (labels.name, labels.classes) == (full.name, full.classes)
    for one, other in ((full.train, labels.train), (full.test, labels.test)):
        assert one.y.tolist() == other.y.tolist()
        assert (one.group is None) == (other.group is None)
        assert one.group is None or (one.group == other.group).all()
        assert other.x[0].numel() <= 3


@pytest.mark.parametrize("make", [write_splits, lambda root, *shape: write_classes(root, *shape) or root])
def test_image_folder_labels_need_no_decoding(make: object, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "pictures"
    make(path, 4, 4, 3)  # type: ignore[operator]
    full = load(str(path), seed=3)
    request.getfixturevalue("no_decoding")
    check_same_labels(full, load_labels(str(path), seed=3))


def test_celeba_labels_need_no_decoding(folder: Path, request: pytest.FixtureRequest) -> None:  # noqa: F811
    full = load("celeba:Male", folder.parent, verify=False)
    request.getfixturevalue("no_decoding")
    check_same_labels(full, load_labels("celeba:Male", folder.parent, verify=False))


def test_urbansound_labels_need_no_decoding(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    write_clips(tmp_path)
    full = load("urbansound8k", tmp_path, test=0.5, seed=2)
    request.getfixturevalue("no_decoding")
    check_same_labels(full, load_labels("urbansound8k", tmp_path, test=0.5, seed=2))


def test_other_datasets_are_loaded_in_full(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((10, 3), "float32"), y=np.arange(10) % 2)
    assert load_labels("mine", tmp_path).shape == (3,)
    assert load_labels("digits").shape == (1, 8, 8)
