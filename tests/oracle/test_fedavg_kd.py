"""FedAvg+KD: plain distillation of the received model."""

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
    random_logits,
    term,
)
from torch.nn import functional as F

from unskew.describe.method_cost import measure
from unskew.methods.fedavg_kd import Distillation


@pytest.mark.papers
@pytest.mark.parametrize(("tau", "want"), [(1.0, 0.506811), (2.0, 0.538135)])
def test_loss_matches_the_spec(tau: float, want: float) -> None:
    """z = (2, 1, 0, -1), z_g = (0.5, 1.5, 1, 0), tau^2 included."""
    assert term(Distillation(tau=tau)).item() == pytest.approx(want, abs=TINY)


def test_loss_is_pytorchs_kl_divergence() -> None:
    """KL(teacher || student) over all classes, as a mean over samples."""
    z, z_g = random_logits(8), random_logits(8, seed=1)
    want = 9 * F.kl_div(F.log_softmax(z / 3, 1), F.softmax(z_g / 3, 1), reduction="batchmean")
    torch.testing.assert_close(term(Distillation(tau=3.0), z, z_g, torch.arange(8) % 4), want)


def test_loss_is_zero_if_student_equals_teacher() -> None:
    assert term(Distillation(), Z, Z).item() == 0


def test_invariants_of_distillation_hold() -> None:
    part = Distillation(beta=0.7, tau=2.0)
    check_never_negative(part)
    check_gradients(part)
    check_filler_rows_are_ignored(part)


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("fedavg-kd", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedavg-kd")
    assert measure("fedavg-kd").cost.passes == 1
