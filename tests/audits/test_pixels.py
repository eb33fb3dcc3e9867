"""MSE, PSNR and SSIM against hand-computed numbers and independent implementations."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import unskew as us
from unskew.audits.metrics.metric_values import MetricValues, SkippedMetric
from unskew.audits.metrics.psnr import as_picture, mse, psnr, to_unit
from unskew.audits.metrics.ssim import ssim


def _pair(shape: tuple[int, ...] = (3, 2, 8, 8)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(shape, generator=generator), torch.rand(shape, generator=generator)


def test_mse_is_the_mean_over_channels_and_pixels_of_each_image() -> None:
    true, recovered = torch.zeros(2, 1, 2, 2), torch.tensor([0.5, 1.0]).view(2, 1, 1, 1).expand(2, 1, 2, 2)
    result = mse(true, recovered, "unit")
    assert result.values.tolist() == [0.25, 1.0]
    assert result.mean == 0.625
    assert result.space == "unit"


def test_mse_in_pixels_is_a_quarter_of_the_normalised_one_for_std_one_half() -> None:
    a, b = _pair()
    pixels = [to_unit(x, (0.5, 0.5), (0.5, 0.5)) for x in (a, b)]
    ratio = mse(*pixels, "unit").values / mse(a, b, "normalised").values
    assert torch.allclose(ratio, torch.full((3,), 0.25, dtype=torch.float64))


def test_to_unit_inverts_the_datasets_normalisation() -> None:
    rows = torch.randint(0, 256, (4, 3, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    split = us.from_arrays(rows.numpy(), np.array([0, 1, 0, 1]), test=0.5)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    from unskew.data.dataset import input_scaling

    inputs = input_scaling(mean, std, split.shape, torch.device("cpu"), torch.float32)(rows)
    assert torch.allclose(to_unit(inputs, mean, std), rows / 255, atol=1e-6)


def test_nan_is_shown_grey_and_pixels_are_clamped() -> None:
    shown = as_picture(torch.tensor([[[[math.nan, 9.0], [-9.0, 0.25]]]]), None, None)
    assert shown.flatten().tolist() == [0.5, 1.0, 0.0, 0.25]


def test_psnr_of_the_papers_mse_with_range_1_and_2() -> None:
    recovered = torch.full((1, 1, 1, 1), math.sqrt(0.6320), dtype=torch.float64)
    true = torch.zeros_like(recovered)
    one, two = (psnr(true, recovered, "normalised", r) for r in (1.0, 2.0))
    assert one.mean == pytest.approx(1.993, abs=5e-4)
    assert two.mean == pytest.approx(8.013, abs=1e-3)
    assert (one.space, two.space) == ("normalised, range 1", "normalised, range 2")


def test_psnr_is_averaged_over_images_instead_of_computed_from_the_mean_mse() -> None:
    true = torch.zeros(2, 1, 1, 1)
    recovered = torch.tensor([0.1, 1.0]).view(2, 1, 1, 1)
    assert psnr(true, recovered, "unit", 1.0).mean == pytest.approx(10.0, abs=1e-5)  # 20 dB and 0 dB
    assert 10 * math.log10(1 / mse(true, recovered, "unit").mean) == pytest.approx(2.967, abs=1e-3)


def test_an_exact_copy_has_a_finite_psnr() -> None:
    a, _ = _pair()
    assert psnr(a, a, "unit", 1.0).values.tolist() == pytest.approx([120.0] * 3)


def test_images_of_different_shape_are_refused() -> None:
    with pytest.raises(us.UserError, match=r"\[2, 2, 8, 8\] against \[3, 2, 8, 8\]"):
        mse(_pair()[0], _pair()[1][:2], "unit")


def test_without_torchmetrics_ssim_is_skipped_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = ssim(*_pair())
    assert isinstance(result, SkippedMetric)
    assert "unskew[privacy]" in result.reason


class TestStructure:
    def test_ssim_is_one_for_a_copy_and_far_less_for_a_negative(self) -> None:
        a, _ = _pair()
        same, other = ssim(a, a), ssim(a, 1 - a)
        assert isinstance(same, MetricValues)
        assert isinstance(other, MetricValues)
        assert torch.allclose(same.values, torch.ones(3, dtype=torch.float64), atol=1e-5)
        assert other.mean < 0.1

    def test_ssim_matches_the_formula_with_scipys_windows(self) -> None:
        a, b = _pair((2, 1, 24, 20))
        result = ssim(a, b)
        assert isinstance(result, MetricValues)
        want = [_by_scipy(x.numpy(), y.numpy()) for x, y in zip(a[:, 0].double(), b[:, 0].double())]
        assert result.values.tolist() == pytest.approx(want, abs=1e-4)

    def test_images_too_small_for_a_window_are_skipped(self) -> None:
        result = ssim(*_pair((2, 1, 4, 4)))
        assert isinstance(result, SkippedMetric)
        assert "1 × 4 × 4" in result.reason


def _by_scipy(x: np.ndarray, y: np.ndarray) -> float:
    """Wang et al. 2004, windows of radius 5, borders reflected without repeating the edge."""

    def smooth(image: np.ndarray) -> np.ndarray:
        return np.asarray(gaussian_filter(image, 1.5, mode="mirror", radius=5))

    mx, my = smooth(x), smooth(y)
    vx, vy, cov = smooth(x * x) - mx**2, smooth(y * y) - my**2, smooth(x * y) - mx * my
    c1, c2 = 0.01**2, 0.03**2
    return float((((2 * mx * my + c1) * (2 * cov + c2)) / ((mx**2 + my**2 + c1) * (vx + vy + c2))).mean())
