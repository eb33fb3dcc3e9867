"""FedNTD: the divergence over the classes that are not the label, against a worked example."""

import pytest
import torch
from distilling import (
    TINY,
    Z_G,
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
from unskew.methods.fedntd import NotTrueDistillation


@pytest.mark.papers
@pytest.mark.parametrize(("tau", "want"), [(1.0, 0.030201), (2.0, 0.031069)])
def test_loss_matches_the_spec(tau: float, want: float) -> None:
    """z = (2, 1, 0, -1), z_g = (0.5, 1.5, 1, 0), y = 0, tau^2 included."""
    assert term(NotTrueDistillation(tau=tau)).item() == pytest.approx(want, abs=TINY)


def test_loss_is_pytorchs_kl_divergence_of_the_logits_without_the_label() -> None:
    """KL(teacher || student), summed over classes, mean over samples; every sample leaves out its own label."""
    z, z_g, y = random_logits(8), random_logits(8, seed=1), torch.arange(8) % 4
    rest = torch.stack([torch.tensor([c for c in range(4) if c != label]) for label in y.tolist()])
    student, teacher = (F.log_softmax(t.gather(1, rest) / 3, 1) for t in (z, z_g))
    want = 9 * F.kl_div(student, teacher.exp(), reduction="batchmean")
    torch.testing.assert_close(term(NotTrueDistillation(tau=3.0), z, z_g, y), want)


def test_counts_of_the_client_do_not_matter() -> None:
    counts = torch.tensor([9.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    assert torch.equal(term(NotTrueDistillation(), counts=counts), term(NotTrueDistillation()))


def test_the_labels_own_logit_has_no_effect() -> None:
    """Teacher = student gives 0; changing the label's own logit changes nothing."""
    assert term(NotTrueDistillation(), Z, Z).item() == 0
    moved = Z + torch.tensor([[5.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(term(NotTrueDistillation(), moved, Z_G), term(NotTrueDistillation()))


def test_two_classes_give_zero() -> None:
    z, z_g = random_logits(6, 2), random_logits(6, 2, seed=1)
    assert term(NotTrueDistillation(), z, z_g, torch.arange(6) % 2).item() == 0


def test_invariants_of_distillation_hold() -> None:
    part = NotTrueDistillation(beta=0.7, tau=2.0)
    check_never_negative(part)
    check_gradients(part)
    check_filler_rows_are_ignored(part)


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("fedntd", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedntd")
    assert measure("fedntd").cost.passes == 1
