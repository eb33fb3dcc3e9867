"""FedDecorr: correlated dimensions, against a calculation by hand and the d x d form of the authors' code."""

import pytest
import torch
from distilling import check_strength_zero_is_fedavg, check_traffic_and_state_equal_fedavg
from toolbox import leaves_of, network, view_of
from torch import Tensor

from unskew.methods.feddecorr import Decorrelation, decorrelation
from unskew.models.model import Model


def rows(b: int, d: int, seed: int = 0) -> Tensor:
    return torch.randn(b, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ones(b: int) -> Tensor:
    return torch.ones(b, dtype=torch.float64)


def authors_form(z: Tensor) -> Tensor:
    """The authors' form: squared d x d products of standardised columns, mean off the diagonal, divided by b."""
    b, d = z.shape
    h = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
    k = h.T @ h
    return (k.square().sum() - k.diagonal().square().sum()) / (d * (d - 1)) / b


@pytest.mark.papers
def test_loss_of_perfectly_correlated_columns_matches_a_calculation_by_hand() -> None:
    """b = 4: off-diagonal products are b - 1, so R = (b - 1)^2 / b = 2.25 for any scale and sign."""
    t = torch.tensor([1.0, 2.0, 4.0, -3.0], dtype=torch.float64)
    for other in (t, -2 * t + 5):
        assert decorrelation(torch.stack([t, other], 1), ones(4)).item() == pytest.approx(2.25, rel=1e-6)


def test_orthogonal_design_has_zero_loss() -> None:
    z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    assert decorrelation(z, ones(4)).item() == pytest.approx(0, abs=1e-15)


@pytest.mark.parametrize(("b", "d"), [(8, 5), (3, 40), (64, 7)])
def test_loss_is_the_authors_form_and_b_times_the_papers(b: int, d: int) -> None:
    """R = (b - 1)^2 / b times the mean squared correlation off the diagonal; 62 times at b = 64."""
    z = rows(b, d) @ rows(d, d, 1)
    actual = decorrelation(z, ones(b))
    torch.testing.assert_close(actual, authors_form(z))
    k = torch.corrcoef(z.T)
    mean = (k.square().sum() - d) / (d * (d - 1))
    torch.testing.assert_close(actual, (b - 1) ** 2 / b * mean, rtol=1e-5, atol=1e-9)


def test_gradient_goes_through_mean_and_variance() -> None:
    z = rows(6, 4).requires_grad_()
    actual, want = (torch.autograd.grad(f, z)[0] for f in (decorrelation(z, ones(6)), authors_form(z)))
    torch.testing.assert_close(actual, want)


def test_filler_rows_are_ignored() -> None:
    """Two of six rows have weight 0: value and gradient are those of the four others."""
    z = rows(6, 4).requires_grad_()
    w = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    real = z[w > 0]
    torch.testing.assert_close(decorrelation(z, w), decorrelation(real, ones(4)))
    actual, want = (torch.autograd.grad(f, z)[0] for f in (decorrelation(z, w), authors_form(real)))
    torch.testing.assert_close(actual, want)


@pytest.mark.parametrize("fill", [1, 4])
def test_single_sample_gives_zero_and_no_gradient(fill: int) -> None:
    z, w = rows(fill, 4).requires_grad_(), torch.eye(fill, dtype=torch.float64)[0]
    loss = decorrelation(z, w)
    (gradient,) = torch.autograd.grad(loss, z)
    assert loss.item() == 0
    assert not gradient.any()


def test_constant_columns_do_not_add_to_the_loss() -> None:
    """Dead units: R sums over the live columns and divides by all d (d - 1) pairs; gradients are finite."""
    live = rows(5, 3)
    z = torch.cat([live, torch.zeros(5, 1), torch.full((5, 1), 7.0)], 1).requires_grad_()
    loss = decorrelation(z, ones(5))
    torch.testing.assert_close(loss, decorrelation(live, ones(5)) * 3 * 2 / (5 * 4))
    assert torch.isfinite(torch.autograd.grad(loss, z)[0]).all()
    assert decorrelation(torch.ones(5, 3), torch.ones(5)).item() == 0


def test_one_dimension_has_no_pairs() -> None:
    assert decorrelation(rows(5, 1), ones(5)).item() == pytest.approx(0, abs=1e-12)


def test_the_representation_is_the_input_of_the_classifier() -> None:
    """The loss is beta times R of the hidden layer; the classifier gets no gradient."""
    model = Model(network(), dtype=torch.float64)
    x, y, leaves = rows(4, 5), torch.tensor([0, 1, 2, 0]), leaves_of(model)
    loss = Decorrelation(beta=0.3).loss(view_of(model, leaves, x, y))
    torch.testing.assert_close(loss, 0.3 * authors_form(model.run(leaves, x, 0, 1)))
    actual = dict(zip(leaves, torch.autograd.grad(loss, leaves.values(), allow_unused=True)))
    assert actual["0.0.weight"].abs().max() > 1e-6
    assert actual["1.weight"] is None


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("feddecorr", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("feddecorr")
