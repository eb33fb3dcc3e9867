"""FedAvg+LS: label smoothing against a worked example and PyTorch's own."""

import pytest
import torch
from distilling import TINY, check_filler_rows_are_ignored, check_traffic_and_state_equal_fedavg, random_logits, term
from toolbox import equal, federation, last_model
from torch.nn import functional as F

from unskew.base.errors import UserError
from unskew.methods.fedls import LabelSmoothing


@pytest.mark.papers
def test_loss_matches_the_spec() -> None:
    """z = (2, 1, 0, -1), y = 0, eps 0.1: 0.590190, where cross-entropy is 0.440190."""
    assert term(LabelSmoothing()).item() == pytest.approx(0.590190, abs=TINY)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.9])
def test_share_is_spread_over_all_classes_as_in_pytorch(eps: float) -> None:
    """eps / C for every class, the true one included; not eps / (C - 1) for the others."""
    z, y = random_logits(8), torch.arange(8) % 4
    want = F.cross_entropy(z, y, label_smoothing=eps)
    torch.testing.assert_close(term(LabelSmoothing(eps=eps), z, z, y), want)


def test_soft_labels_are_smoothed_too() -> None:
    z, y = random_logits(3), torch.softmax(random_logits(3, seed=2), 1)
    want = F.cross_entropy(z, 0.9 * y + 0.1 / 4)
    torch.testing.assert_close(term(LabelSmoothing(), z, z, y), want)


def test_filler_rows_are_ignored() -> None:
    check_filler_rows_are_ignored(LabelSmoothing())


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_eps_zero_is_fedavg_bit_for_bit(precision: str) -> None:
    neutral = federation([{"fedls": {"eps": 0.0}}], precision=precision)
    assert equal(last_model(neutral, 3), last_model(federation("fedavg", precision=precision), 3))


def test_label_smoothing_replaces_cross_entropy() -> None:
    fed = federation("fedls+prox")
    assert [part.name for part in fed.method.parts] == ["average", "ls", "prox"]
    with pytest.raises(UserError, match="both the main loss"):
        federation("fedls+ce")


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedls")
