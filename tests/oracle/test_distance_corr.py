"""Distance correlation as a training term: a worked example, invariances, and the two values logged with it."""

from itertools import permutations

import pytest
import torch
from torch import Tensor

from unskew.methods.shared.distance_corr import centred, distance_correlation, distances

X = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], dtype=torch.float64)
F = torch.tensor([[1.0], [0.0], [2.0], [1.0]], dtype=torch.float64)


def rows(b: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(b, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ones(b: int) -> Tensor:
    return torch.ones(b, dtype=torch.float64)


@pytest.mark.papers
@pytest.mark.parametrize(("floor", "c"), [(0.0, 0.776528), (1e-7, 0.776503)])
def test_c_of_four_rows_matches_the_spec(floor: float, c: float) -> None:
    assert distance_correlation(X, F, ones(4), floor).c.item() == pytest.approx(c, abs=5e-7)


@pytest.mark.papers
def test_intermediate_values_and_other_readings_match_the_spec() -> None:
    p = ones(4) / 4

    def v(a: Tensor, b: Tensor) -> float:
        return float((centred(a, p) * centred(b, p)).mean())

    a, b = distances(X, 0.0), distances(F, 0.0)
    assert (v(a, b), v(a, a), v(b, b)) == pytest.approx((0.373258, 1.226144, 0.3125), abs=5e-7)
    ratio = v(a, b) / (v(a, a) * v(b, b)) ** 0.5
    assert (ratio, ratio**0.5) == pytest.approx((0.602995, 0.776528), abs=5e-7)
    printed = v(a, b) / (v(a, b) * v(b, b)) ** 0.5  # the equation as it stands in the paper, which exceeds 1
    absolute = float((centred(a, p) * centred(b, p)).abs().mean()) / (v(a, a) * v(b, b)) ** 0.5
    assert (printed, absolute, absolute**0.5) == pytest.approx((1.092899, 0.743357, 0.862181), abs=5e-7)
    a, b = a**2, b**2  # squared distances: linear CKA
    cka = v(a, b) / (v(a, a) * v(b, b)) ** 0.5
    assert (cka, cka**0.5) == pytest.approx((0.378777, 0.615449), abs=5e-7)


def test_c_of_a_rotated_scaled_and_shifted_copy_is_one() -> None:
    x = rows(8, 3)
    rotation = torch.linalg.qr(rows(3, 3, 1))[0]
    for f in (x, 2.5 * x @ rotation + 7):
        assert distance_correlation(x, f, ones(8), 0.0).c.item() == pytest.approx(1, abs=1e-12)


def test_c_of_a_general_linear_map_is_below_one() -> None:
    """With axes scaled by 0.1 to 5 the squared c is 0.859, measured independently; the paper's text claims 1."""
    scales = torch.linspace(0.1, 5, 20, dtype=torch.float64)
    squares = [distance_correlation(x := rows(64, 20, s), x * scales, ones(64), 0.0).c ** 2 for s in range(20)]
    assert torch.stack(squares).mean().item() == pytest.approx(0.859, abs=0.01)


def test_order_of_the_rows_does_not_matter() -> None:
    x, f, order = rows(8, 3), rows(8, 4, 1), torch.randperm(8, generator=torch.Generator().manual_seed(2))
    for one, other in zip(
        distance_correlation(x, f, ones(8)), distance_correlation(x[order], f[order], ones(8)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_filler_rows_are_ignored() -> None:
    """All three values and the gradient are those of the four rows with weight 1."""
    x, f, w = rows(6, 3), rows(6, 4, 1).requires_grad_(), torch.tensor([1.0, 0, 1, 1, 0, 1], dtype=torch.float64)
    actual, want = distance_correlation(x, f, w), distance_correlation(x[w > 0], f[w > 0], ones(4))
    torch.testing.assert_close(tuple(actual), tuple(want))
    torch.testing.assert_close(*(torch.autograd.grad(one.c, f)[0] for one in (actual, want)))


@pytest.mark.parametrize("fill", [1, 4])
def test_a_single_row_gives_zero_and_no_gradient(fill: int) -> None:
    f, w = rows(fill, 4).requires_grad_(), torch.eye(fill, dtype=torch.float64)[0]
    actual = distance_correlation(rows(fill, 3), f, w)
    assert [number.item() for number in actual] == [0, 0, 0]
    assert not torch.autograd.grad(actual.c, f)[0].any()


def test_constant_features_have_a_finite_gradient() -> None:
    f = torch.zeros(5, 4, dtype=torch.float64, requires_grad=True)
    actual = distance_correlation(rows(5, 3), f, ones(5))
    assert torch.isfinite(torch.autograd.grad(actual.c, f)[0]).all()


def test_chance_is_the_mean_over_all_permutations() -> None:
    """All 120 orders of five features: the mean of c^2, by the formula without floors."""
    x, f = rows(5, 3), rows(5, 2, 1)
    squares = [distance_correlation(x, f[list(order)], ones(5), 0.0).c ** 2 for order in permutations(range(5))]
    chance = distance_correlation(x, f, ones(5), 0.0).chance
    torch.testing.assert_close(chance**2, torch.stack(squares).mean())


@pytest.mark.parametrize(("n", "square"), [(64, 0.35), (32, 0.51)])
def test_squared_c_of_independent_rows_matches_the_spec(n: int, square: float) -> None:
    """Rows of 20 and of 5 numbers: squared c as measured independently."""
    squares = [distance_correlation(rows(n, 20, 2 * s), rows(n, 5, 2 * s + 1), ones(n), 0.0).c ** 2 for s in range(20)]
    assert torch.stack(squares).mean().item() == pytest.approx(square, abs=0.01)


@pytest.mark.parametrize(("b", "near"), [(2, 1.0), (4, 0.999), (8, 0.998), (16, 0.997), (32, 0.994), (64, 0.988)])
def test_a_small_batch_of_independent_rows_has_c_near_one_and_the_corrected_square_near_zero(
    b: int, near: float
) -> None:
    """c has no meaning without its value by chance."""
    actual = distance_correlation(rows(b, 384), rows(b, 2000, 1), ones(b))
    assert actual.c.item() == pytest.approx(near, abs=0.004)
    assert actual.chance.item() == pytest.approx(actual.c.item(), abs=0.004)
    assert b < 16 or abs(actual.corrected.item()) < 0.1  # for fewer rows it fluctuates


def test_the_corrected_square_of_a_copy_is_one() -> None:
    x = rows(6, 3)
    assert distance_correlation(x, 3 * x, ones(6)).corrected.item() == pytest.approx(1)
    assert distance_correlation(x[:3], x[:3], ones(3)).corrected.item() == 0


def test_single_precision_with_many_numbers_agrees_with_double() -> None:
    """Squared distances by a matrix product lose digits; subtracting the mean first limits the loss."""
    x = rows(32, 3072) + 5
    f = x[:, :1024].tanh() @ rows(1024, 4096, 1) / 30 + 100
    actual, want = (distance_correlation(x.to(d), f.to(d), ones(32).to(d)) for d in (torch.float32, torch.float64))
    for one, other in zip(actual, want, strict=True):
        assert one.item() == pytest.approx(other.item(), abs=2e-5)
