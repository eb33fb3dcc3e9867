"""FedNTD-Tf: the uniform teacher on the classes that are not the label."""

import math

import pytest
import torch
from distilling import (
    TINY,
    Z,
    check_filler_rows_are_ignored,
    check_gradients,
    check_never_negative,
    check_strength_zero_is_fedavg,
    check_traffic_and_state_equal_fedavg,
    counts_of,
    random_logits,
    term,
)

from unskew.describe.method_cost import measure
from unskew.methods.fedlmd_tf import TeacherFreeMasking
from unskew.methods.fedntd_tf import TeacherFreeNotTrue


@pytest.mark.papers
@pytest.mark.parametrize(("tau", "want"), [(1.0, 0.308994), (2.0, 0.326630)])
def test_loss_matches_the_spec(tau: float, want: float) -> None:
    """The formula once more by hand: tau^2 ( -log 3 - mean of log softmax((1, 0, -1) / tau) )."""
    by_hand = tau**2 * (-math.log(3) - torch.log_softmax(Z[0, 1:] / tau, 0).mean().item())
    assert by_hand == pytest.approx(want, abs=TINY)
    assert term(TeacherFreeNotTrue(tau=tau)).item() == pytest.approx(by_hand, rel=1e-12)


def test_loss_is_fedlmd_tfs_with_the_label_or_no_class_as_majority() -> None:
    z, z_g = random_logits(6), random_logits(6, seed=1)
    for label in range(4):
        y = torch.full((6,), label)
        want = term(TeacherFreeNotTrue(tau=2.0), z, z_g, y)
        for counts in (counts_of({label}), counts_of(set())):
            assert torch.equal(term(TeacherFreeMasking(tau=2.0), z, z_g, y, counts=counts), want)


def test_received_model_is_not_used() -> None:
    assert torch.equal(term(TeacherFreeNotTrue(), Z, random_logits(1)), term(TeacherFreeNotTrue()))
    assert measure("fedntd-tf").cost.passes == 0


def test_loss_is_zero_if_the_other_logits_are_equal() -> None:
    z = torch.tensor([[5.0, -1.0, -1.0, -1.0]], dtype=torch.float64)
    assert term(TeacherFreeNotTrue(), z).item() == pytest.approx(0, abs=1e-15)


def test_two_classes_give_zero() -> None:
    assert term(TeacherFreeNotTrue(), random_logits(6, 2), random_logits(6, 2), torch.arange(6) % 2).item() == 0


def test_invariants_of_distillation_hold() -> None:
    part = TeacherFreeNotTrue(beta=0.7, tau=2.0)
    check_never_negative(part)
    check_gradients(part)
    check_filler_rows_are_ignored(part)


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("fedntd-tf", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedntd-tf")
