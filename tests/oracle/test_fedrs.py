"""FedRS: the scale of absent classes, binary and soft, against a worked example."""

import pytest
import torch
from distilling import TINY, check_filler_rows_are_ignored, check_traffic_and_state_equal_fedavg, random_logits, term
from toolbox import equal, federation, last_model
from torch import Tensor
from torch.nn import functional as F

from unskew.methods.fedrs import RestrictedSoftmax

Z = torch.tensor([[2.0, 1.0, -1.0]], dtype=torch.float64)


def counts(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.papers
def test_loss_matches_the_spec() -> None:
    """z = (2, 1, -1), y = 0, classes 1 and 2 absent, alpha 0.5: CE of (2, 0.5, -0.5) is 0.266368; plain 0.349012."""
    actual = term(RestrictedSoftmax(alpha=0.5), Z, Z, counts=counts(7, 0, 0))
    assert actual.item() == pytest.approx(0.266368, abs=TINY)
    assert term(RestrictedSoftmax(alpha=0.5), Z, Z, counts=counts(7, 1, 2)).item() == pytest.approx(0.349012, abs=TINY)


def test_scale_depends_on_the_client_and_not_on_the_batch() -> None:
    """A batch with only label 0, from a client that has all three labels: no logit is scaled."""
    z, y = random_logits(4, 3), torch.zeros(4, dtype=torch.int64)
    assert torch.equal(term(RestrictedSoftmax(), z, z, y, counts=counts(1, 9, 3)), F.cross_entropy(z, y))


def test_soft_scale_depends_on_the_counts() -> None:
    """Counts (8, 2, 0), alpha 0.5: scales 1, 0.5 + 0.5/4 = 0.625, 0.5; logits (2, 0.625, -0.5)."""
    want = F.cross_entropy(torch.tensor([[2.0, 0.625, -0.5]], dtype=torch.float64), torch.tensor([0]))
    torch.testing.assert_close(term(RestrictedSoftmax(soft=True), Z, Z, counts=counts(8, 2, 0)), want)


@pytest.mark.parametrize("soft", [False, True])
def test_gradient_of_absent_classes_is_scaled_by_alpha(soft: bool) -> None:
    """The gradient of an absent class's logit is alpha times its scaled probability, so 0 at alpha 0."""
    for alpha in (0.0, 0.3):
        z = Z.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(term(RestrictedSoftmax(alpha, soft), z, Z, counts=counts(7, 0, 0)), z)
        scaled = torch.tensor([1.0, alpha, alpha], dtype=torch.float64) * Z[0]
        torch.testing.assert_close(gradient[0, 1:], alpha * torch.softmax(scaled, 0)[1:])


@pytest.mark.parametrize("alpha", [0.1, 1 / 3, 0.7])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_logits_of_present_classes_keep_every_bit(alpha: float, precision: torch.dtype) -> None:
    z = random_logits(5, 3).to(precision)
    y, alpha_tensor = torch.arange(5) % 3, torch.tensor(alpha, dtype=precision)
    part = RestrictedSoftmax()
    part.__dict__["alpha"] = alpha_tensor  # as in a step, where fields are tensors
    assert torch.equal(term(part, z, z, y, counts=counts(4, 1, 2).to(precision)), F.cross_entropy(z, y))


@pytest.mark.parametrize("soft", [False, True])
def test_filler_rows_are_ignored(soft: bool) -> None:
    check_filler_rows_are_ignored(RestrictedSoftmax(soft=soft), counts=counts(5, 0, 2, 1))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_alpha_one_is_fedavg_bit_for_bit(precision: str, soft: bool) -> None:
    neutral = federation([{"fedrs": {"alpha": 1.0, "soft": soft}}], sizes=(2, 1, 5), precision=precision)
    assert equal(last_model(neutral, 3), last_model(federation("fedavg", sizes=(2, 1, 5), precision=precision), 3))


def test_clients_with_all_classes_train_as_in_fedavg_and_others_do_not() -> None:
    complete, scarce = (
        [last_model(federation(method, sizes=sizes), 2) for method in ("fedrs", "fedavg")]
        for sizes in ((3, 5, 8), (2, 1, 5))
    )
    assert equal(*complete)
    assert not equal(*scarce)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedrs")
