"""LPIPS against the numbers of its authors' package, version 0.1.4, on the same weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew as us
from unskew.audit.metrics.lpips import FILE, lpips, shapes
from unskew.audit.metrics.metric_values import MetricValues, SkippedMetric

REAL = Path(os.environ.get("UNSKEW_DATA", "/nowhere"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights drawn at random."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("weights")
    drawn = {}
    for name, shape in sorted(shapes().items()):
        values = rng.normal(size=shape)
        scale = np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 100)
        drawn[name] = (np.abs(values) if name.startswith("lin") else values / scale).astype(np.float32)
    np.savez(folder / FILE, **drawn)
    return folder


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.random((2, 3, 32, 32))).float(), torch.from_numpy(rng.random((2, 3, 32, 32))).float()


def test_it_gives_the_numbers_of_the_authors_package(root: Path) -> None:
    found = lpips(*_images(), root)
    assert isinstance(found, MetricValues)
    assert found.space == "alex"
    assert found.values.tolist() == pytest.approx([1.1753865480, 1.1706784964], rel=1e-5)


def test_a_copy_is_at_distance_zero_and_order_does_not_matter(root: Path) -> None:
    a, b = _images()
    same, there, back = (lpips(*pair, root) for pair in ((a, a), (a, b), (b, a)))
    assert isinstance(same, MetricValues)
    assert isinstance(there, MetricValues)
    assert isinstance(back, MetricValues)
    assert same.values.tolist() == [0.0, 0.0]
    assert torch.allclose(there.values, back.values)


def test_a_grey_image_stands_for_three_equal_channels(root: Path) -> None:
    a, b = (x[:, :1] for x in _images())
    grey, colour = lpips(a, b, root), lpips(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1), root)
    assert isinstance(grey, MetricValues)
    assert isinstance(colour, MetricValues)
    assert torch.allclose(grey.values, colour.values)


def test_without_the_file_it_is_skipped_and_says_where_to_put_it(tmp_path: Path) -> None:
    found = lpips(*_images(), tmp_path)
    assert isinstance(found, SkippedMetric)
    assert str(tmp_path / FILE) in found.reason
    assert "UNSKEW_DATA" in found.reason


def test_pictures_too_small_for_alexnet_are_skipped(root: Path) -> None:
    a, b = _images()
    assert isinstance(lpips(a[..., :31, :31], b[..., :31, :31], root), MetricValues)
    found = lpips(a[..., :30, :30], b[..., :30, :30], root)
    assert isinstance(found, SkippedMetric)
    assert "31 × 31" in found.reason


def test_a_file_that_is_no_weights_file_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes((root / FILE).read_bytes()[:1000])
    with pytest.raises(us.UserError, match=FILE):
        lpips(*_images(), tmp_path)
    np.savez(tmp_path / FILE, **{"features.0.weight": np.zeros((64, 3, 11, 11), np.float32)})
    with pytest.raises(us.UserError, match=r"expected features\.0\.bias of shape \[64\], found nothing"):
        lpips(*_images(), tmp_path)


@pytest.mark.skipif(not (REAL / FILE).is_file(), reason="needs UNSKEW_DATA with the real weights and faces")
def test_real_faces_have_the_authors_numbers() -> None:
    faces = torch.from_numpy(np.load(REAL / "lfw20.npz")["x"][:4]).permute(0, 3, 1, 2) / 255
    found = lpips(faces[:2], faces[2:], REAL)
    assert isinstance(found, MetricValues)
    assert found.values.tolist() == pytest.approx([0.2854090631, 0.1278491616], abs=1e-5)
