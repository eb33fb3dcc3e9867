"""LPIPS against the numbers of its authors' package, version 0.1.4, on the same weights."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew as us
from unskew.audits.metrics.lpips import FILE, lpips, weight_shapes
from unskew.audits.metrics.metric_values import MetricValues, SkippedMetric

REAL = Path(os.environ.get("UNSKEW_DATA", "/nowhere"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with random weights."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("weights")
    drawn = {}
    for name, shape in sorted(weight_shapes().items()):
        values = rng.normal(size=shape)
        scale = np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 100)
        drawn[name] = (np.abs(values) if name.startswith("lin") else values / scale).astype(np.float32)
    np.savez(folder / FILE, **drawn)
    return folder


def _images() -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    return torch.from_numpy(rng.random((2, 3, 32, 32))).float(), torch.from_numpy(rng.random((2, 3, 32, 32))).float()


def test_lpips_matches_the_authors_package(root: Path) -> None:
    result = lpips(*_images(), root)
    assert isinstance(result, MetricValues)
    assert result.space == "alex"
    assert result.values.tolist() == pytest.approx([1.1753865480, 1.1706784964], rel=1e-5)


def test_a_copy_has_distance_zero_and_the_distance_is_symmetric(root: Path) -> None:
    a, b = _images()
    same, forward, backward = (lpips(*pair, root) for pair in ((a, a), (a, b), (b, a)))
    assert isinstance(same, MetricValues)
    assert isinstance(forward, MetricValues)
    assert isinstance(backward, MetricValues)
    assert same.values.tolist() == [0.0, 0.0]
    assert torch.allclose(forward.values, backward.values)


def test_a_grey_image_counts_as_three_equal_channels(root: Path) -> None:
    a, b = (x[:, :1] for x in _images())
    grey, colour = lpips(a, b, root), lpips(a.expand(-1, 3, -1, -1), b.expand(-1, 3, -1, -1), root)
    assert isinstance(grey, MetricValues)
    assert isinstance(colour, MetricValues)
    assert torch.allclose(grey.values, colour.values)


def test_without_the_weights_file_lpips_is_skipped_and_the_reason_names_its_folder(tmp_path: Path) -> None:
    result = lpips(*_images(), tmp_path)
    assert isinstance(result, SkippedMetric)
    assert str(tmp_path / FILE) in result.reason
    assert "UNSKEW_DATA" in result.reason


def test_images_too_small_for_alexnet_are_skipped(root: Path) -> None:
    a, b = _images()
    assert isinstance(lpips(a[..., :31, :31], b[..., :31, :31], root), MetricValues)
    result = lpips(a[..., :30, :30], b[..., :30, :30], root)
    assert isinstance(result, SkippedMetric)
    assert "31 × 31" in result.reason


def test_an_invalid_weights_file_is_named(root: Path, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes((root / FILE).read_bytes()[:1000])
    with pytest.raises(us.UserError, match=FILE):
        lpips(*_images(), tmp_path)
    np.savez(tmp_path / FILE, **{"features.0.weight": np.zeros((64, 3, 11, 11), np.float32)})
    with pytest.raises(us.UserError, match=r"expected features\.0\.bias of shape \[64\], found nothing"):
        lpips(*_images(), tmp_path)


@pytest.mark.skipif(not (REAL / FILE).is_file(), reason="needs UNSKEW_DATA with the real weights and faces")
def test_lpips_of_real_faces_matches_the_authors_package() -> None:
    faces = torch.from_numpy(np.load(REAL / "lfw20.npz")["x"][:4]).permute(0, 3, 1, 2) / 255
    result = lpips(faces[:2], faces[2:], REAL)
    assert isinstance(result, MetricValues)
    assert result.values.tolist() == pytest.approx([0.2854090631, 0.1278491616], abs=1e-5)
