"""Distance correlation: numbers of a worked example, invariances, and the permutation baseline."""

from __future__ import annotations

import pytest
import torch

import unskew as us
from unskew.audits.metrics.dependence import dependence, distance_correlation
from unskew.methods.shared import distance_corr
from unskew.methods.shared.distance_corr import FLOOR

X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
F = torch.tensor([[1.0], [0.0], [2.0], [1.0]])


def _drawn(rows: int, *sizes: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(rows, size, generator=generator) for size in sizes]


def test_the_specifications_numbers_without_and_with_floors() -> None:
    assert distance_correlation(X, F) == pytest.approx(0.776528, abs=5e-7)
    assert distance_correlation(X, F, FLOOR) == pytest.approx(0.776503, abs=5e-7)
    assert dependence(X, F).dcor == pytest.approx(0.776528, abs=5e-7)


def test_dcor_of_a_rotated_scaled_and_shifted_copy_is_one() -> None:
    x, square = _drawn(40, 6, 6)
    turn = torch.linalg.qr(square[:6])[0]
    assert distance_correlation(x, 3 * x @ turn + 7) == pytest.approx(1.0, abs=1e-6)


def test_a_general_linear_map_does_not_give_one() -> None:
    (x,) = _drawn(400, 10)
    assert distance_correlation(x, x * torch.linspace(0.1, 5, 10)) ** 2 < 0.95


def test_the_same_reordering_of_both_changes_nothing() -> None:
    x, f = _drawn(30, 5, 3)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert distance_correlation(x[order], f[order]) == pytest.approx(distance_correlation(x, f), abs=1e-12)


def test_dcor_of_rows_that_are_all_equal_is_zero() -> None:
    x, _ = _drawn(8, 3, 3)
    assert distance_correlation(x, torch.ones(8, 2)) == 0.0
    assert dependence(x, torch.ones(8, 2)).corrected == 0.0


def test_independent_rows_have_a_high_dcor_and_an_equally_high_baseline() -> None:
    x, f = _drawn(32, 384, 2000)
    result = dependence(x, f)
    assert result.dcor == pytest.approx(0.994, abs=2e-3)  # measured independently of this code
    assert result.baseline == pytest.approx(result.dcor, abs=2e-3)
    assert abs(result.corrected) < 0.1
    assert result.p_value > 0.01


def test_dependent_rows_are_above_their_baseline() -> None:
    (x,) = _drawn(64, 20)
    result = dependence(x, x[:, :5])
    assert result.dcor > result.baseline_high > result.baseline
    assert result.corrected > 0.2
    assert result.p_value == pytest.approx(1 / 201)
    same = dependence(x, x)
    assert (same.dcor, same.corrected) == pytest.approx((1.0, 1.0))
    assert "permuted at random" in same.summary


def test_the_corrected_value_equals_the_unbiased_sum_written_out() -> None:
    x, f = _drawn(9, 3, 2)
    a, b = (torch.cdist(t.double(), t.double()) for t in (x, f))
    n = 9

    def inner(p: torch.Tensor, q: torch.Tensor) -> float:  # Huo and Szekely 2016, eq. 2.5, without centred matrices
        ends = (p.sum(1) * q.sum(1)).sum()
        return float((p * q).sum() - 2 * ends / (n - 2) + p.sum() * q.sum() / ((n - 1) * (n - 2)))

    want = inner(a, b) / (inner(a, a) * inner(b, b)) ** 0.5
    assert dependence(x, f).corrected == pytest.approx(want, abs=1e-6)


def test_the_loss_and_the_audit_use_the_same_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removing the centring changes both to the same other value."""
    x, f = _drawn(12, 5, 3)
    monkeypatch.setattr(distance_corr, "centred", lambda d, p: d)
    assert distance_correlation(x, f) > 0.9
    assert float(distance_corr.distance_correlation(x, f, torch.ones(12), 0.0).c) == pytest.approx(
        distance_correlation(x, f), rel=1e-5
    )


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(us.UserError, match="at least 4 rows"):
        dependence(X[:3], F[:3])
