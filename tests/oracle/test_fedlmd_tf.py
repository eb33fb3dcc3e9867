"""FedLMD-Tf: the uniform teacher on the kept classes, against worked examples."""

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
from unskew.methods.fedlmd import LabelMaskingDistillation
from unskew.methods.fedlmd_tf import TeacherFreeMasking


@pytest.mark.papers
@pytest.mark.parametrize(
    ("labels", "at_tau_1", "at_tau_2"),
    [
        ({0}, 0.308994, 0.326630),
        ({0, 1}, 1.214459, 2.948490),
        ({1}, 1.214459, 2.948490),
        ({0, 1, 2}, 2.407606, 6.721079),
        ({1, 2}, 2.407606, 6.721079),
        ({1, 2, 3}, 0.0, 0.0),
    ],
)
def test_loss_matches_the_spec(labels: set[int], at_tau_1: float, at_tau_2: float) -> None:
    """The teacher leaves out y = 0 even if it is not a majority label: 1/|U| instead of 1/(C - |M|)."""
    for tau, want in ((1.0, at_tau_1), (2.0, at_tau_2)):
        assert term(TeacherFreeMasking(tau=tau), counts=counts_of(labels)).item() == pytest.approx(want, abs=TINY)


def test_with_one_kept_class_loss_is_fedlmds() -> None:
    """With |U| = 1 every teacher gives that class probability 1."""
    z, z_g, y = random_logits(5), random_logits(5, seed=1), torch.zeros(5, dtype=torch.int64)
    for labels in ({0, 1, 2}, {1, 3}):
        free, full = (part(tau=3.0) for part in (TeacherFreeMasking, LabelMaskingDistillation))
        counts = counts_of(labels)
        torch.testing.assert_close(term(free, z, z_g, y, counts=counts), term(full, z, z_g, y, counts=counts))


def test_loss_includes_the_constant_of_the_formula() -> None:
    """tau^2 ( -log|U| - mean over U of log p^S ), U = {2, 3}, V = {1, 2, 3}."""
    log_s = torch.log_softmax(Z[0, 1:] / 2, 0)
    want = 4 * (-math.log(2) - log_s[1:].mean())
    torch.testing.assert_close(term(TeacherFreeMasking(tau=2.0), counts=counts_of({1})), want)


def test_loss_is_zero_if_the_student_is_uniform_on_the_kept_classes() -> None:
    z = torch.tensor([[3.0, -1e4, 1.0, 1.0]], dtype=torch.float64)
    assert term(TeacherFreeMasking(), z, counts=counts_of({0, 1})).item() == pytest.approx(0, abs=1e-12)


def test_received_model_is_not_used() -> None:
    a, b = (term(TeacherFreeMasking(), Z, random_logits(1, seed=seed), counts=counts_of({1})) for seed in (1, 2))
    assert torch.equal(a, b)
    assert measure("fedlmd-tf").cost.passes == 0


@pytest.mark.parametrize("labels", [set(), {0}, {1, 2}])
def test_invariants_of_distillation_hold(labels: set[int]) -> None:
    part, counts = TeacherFreeMasking(beta=0.7, tau=2.0), counts_of(labels)
    check_never_negative(part, counts=counts)
    check_gradients(part, counts=counts)
    check_filler_rows_are_ignored(part, counts=counts)


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("fedlmd-tf", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedlmd-tf")
