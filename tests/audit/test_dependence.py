"""Distance correlation: the specification's numbers, invariances, and what chance gives."""

from __future__ import annotations

import pytest
import torch

import unskew as us
from unskew.audit.metrics.dependence import dependence, distance_correlation
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


def test_turning_scaling_and_shifting_leave_it_at_one() -> None:
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


def test_rows_that_are_all_equal_tell_nothing() -> None:
    x, _ = _drawn(8, 3, 3)
    assert distance_correlation(x, torch.ones(8, 2)) == 0.0
    assert dependence(x, torch.ones(8, 2)).corrected == 0.0


def test_independent_rows_look_dependent_until_one_sees_the_baseline() -> None:
    x, f = _drawn(32, 384, 2000)
    found = dependence(x, f)
    assert found.dcor == pytest.approx(0.994, abs=2e-3)  # the specification's measurement
    assert found.baseline == pytest.approx(found.dcor, abs=2e-3)
    assert abs(found.corrected) < 0.1
    assert found.p_value > 0.01


def test_dependent_rows_are_above_their_baseline() -> None:
    (x,) = _drawn(64, 20)
    found = dependence(x, x[:, :5])
    assert found.dcor > found.baseline_high > found.baseline
    assert found.corrected > 0.2
    assert found.p_value == pytest.approx(1 / 201)
    same = dependence(x, x)
    assert (same.dcor, same.corrected) == pytest.approx((1.0, 1.0))
    assert "dealt at random" in same.words


def test_the_corrected_value_is_the_unbiased_sum_written_out() -> None:
    x, f = _drawn(9, 3, 2)
    a, b = (torch.cdist(t.double(), t.double()) for t in (x, f))
    n = 9

    def inner(p: torch.Tensor, q: torch.Tensor) -> float:  # Huo and Szekely 2016, eq. 2.5, without centred matrices
        ends = (p.sum(1) * q.sum(1)).sum()
        return float((p * q).sum() - 2 * ends / (n - 2) + p.sum() * q.sum() / ((n - 1) * (n - 2)))

    want = inner(a, b) / (inner(a, a) * inner(b, b)) ** 0.5
    assert dependence(x, f).corrected == pytest.approx(want, abs=1e-6)


def test_one_formula_serves_the_loss_and_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the centring both are the same other number."""
    x, f = _drawn(12, 5, 3)
    monkeypatch.setattr(distance_corr, "centred", lambda d, p: d)
    assert distance_correlation(x, f) > 0.9
    assert float(distance_corr.distance_correlation(x, f, torch.ones(12), 0.0).c) == pytest.approx(
        distance_correlation(x, f), rel=1e-5
    )


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(us.UserError, match="at least 4 rows"):
        dependence(X[:3], F[:3])
