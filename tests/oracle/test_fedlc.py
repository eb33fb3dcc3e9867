"""FedLC: logits lowered by n^(-1/4), against a worked example."""

import pytest
import torch
from distilling import TINY, check_filler_rows_are_ignored, check_traffic_and_state_equal_fedavg, random_logits, term
from toolbox import equal, federation, last_model
from torch import Tensor
from torch.nn import functional as F

from unskew.methods.fedlc import LogitsCalibration

FLAT = torch.zeros(1, 3, dtype=torch.float64)


def counts(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.papers
def test_loss_matches_the_spec() -> None:
    """n = (100, 25, 1), z = 0, tau 1: shifts (0.316228, 0.447214, 1), y = 2 gives 1.551687.

    The printed formula, whose denominator leaves out the label, would give 1.313570.
    """
    actual = term(LogitsCalibration(), FLAT, FLAT, torch.tensor([2]), counts=counts(100, 25, 1))
    shifts = torch.tensor([0.316228, 0.447214, 1.0], dtype=torch.float64)
    assert actual.item() == pytest.approx(1.551687, abs=TINY)
    assert actual.item() == pytest.approx((shifts[2] + (-shifts).exp().sum().log()).item(), abs=1e-6)


def test_rare_labels_have_a_larger_loss() -> None:
    losses = [
        term(LogitsCalibration(), FLAT, FLAT, torch.tensor([y]), counts=counts(100, 25, 1)).item() for y in range(3)
    ]
    assert losses == sorted(losses)
    assert losses[0] < losses[2]


def test_equal_counts_are_cross_entropy() -> None:
    z, y = random_logits(6, 3), torch.arange(6) % 3
    torch.testing.assert_close(term(LogitsCalibration(), z, z, y, counts=counts(4, 4, 4)), F.cross_entropy(z, y))


def test_absent_class_gets_almost_no_gradient() -> None:
    """1e-6 rows lower the logit by 31.6 and scale its gradient by e^-31.6 = 2e-14: as if the class were left out."""
    z = random_logits(4, 3).requires_grad_()
    y = torch.tensor([0, 1, 0, 1])
    loss = term(LogitsCalibration(), z, z.detach(), y, counts=counts(9, 9, 0))
    (gradient,) = torch.autograd.grad(loss, z)
    assert 0 <= gradient[:, 2].max() < 1e-10
    torch.testing.assert_close(loss, F.cross_entropy(z[:, :2], y), rtol=1e-9, atol=1e-10)


def test_absent_class_is_finite_even_as_a_label() -> None:
    """A shared row may have a label that the client has no rows of."""
    z = FLAT.clone().requires_grad_()
    loss = term(LogitsCalibration(), z, FLAT, torch.tensor([1]), counts=counts(9, 0, 0))
    (gradient,) = torch.autograd.grad(loss, z)
    assert 30 < loss.item() < 40
    assert torch.isfinite(gradient).all()


def test_filler_rows_are_ignored() -> None:
    check_filler_rows_are_ignored(LogitsCalibration(), counts=counts(5, 0, 2, 1))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_tau_zero_is_fedavg_bit_for_bit(precision: str) -> None:
    neutral = federation([{"fedlc": {"tau": 0.0}}], sizes=(2, 1, 5), precision=precision)
    assert equal(last_model(neutral, 3), last_model(federation("fedavg", sizes=(2, 1, 5), precision=precision), 3))


def test_equal_counts_train_as_in_fedavg_and_others_do_not() -> None:
    even, uneven = (
        [last_model(federation(method, sizes=sizes), 2) for method in ("fedlc", "fedavg")]
        for sizes in ((3, 6, 9), (2, 1, 5))
    )
    torch.testing.assert_close(*even, rtol=1e-9, atol=1e-11)
    assert not equal(*uneven)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedlc")
