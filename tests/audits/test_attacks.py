"""Invariants of label inference, L-BFGS, DLG, iDLG and IG on 8 x 8 images."""

from __future__ import annotations

import pytest
import torch

from unskew.audits.attacks.dlg import dlg
from unskew.audits.attacks.idlg import idlg
from unskew.audits.attacks.ig import cosine_distance, ig, total_variation
from unskew.audits.attacks.label_inference import (
    infer_labels,
    infer_labels_of_all,
    known_or_inferred_labels,
    representation,
)
from unskew.audits.attacks.lbfgs import minimise
from unskew.audits.problem import no_progress

from .victim import CLASSES, Victim, victim


@pytest.fixture(scope="module")
def one() -> Victim:
    return victim()


# Label inference
def gradient_of(y: torch.Tensor, logits: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient of the last layer's weight and bias for soft targets y [n, C] and inputs h [n, d]."""
    d = (logits.softmax(1) - y) / len(y)
    return d.T @ h, d.sum(0)


@pytest.mark.parametrize("bias", [True, False])
def test_label_of_one_sample_is_exact(bias: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    for label in range(CLASSES):
        y = torch.eye(CLASSES)[[label]]
        w, b = gradient_of(y, 4 * torch.randn(1, CLASSES, generator=draw), torch.rand(1, 7, generator=draw))
        assert infer_labels(w, b if bias else None, 1).tolist() == [label]
        assert (w.sum(1) < 0).nonzero().flatten().tolist() == [label]


def test_negative_features_break_the_row_sums_but_not_the_bias() -> None:
    w, b = gradient_of(torch.eye(CLASSES)[[3]], torch.zeros(1, CLASSES), -torch.ones(1, 7))
    assert infer_labels(w, None, 1).tolist() != [3]
    assert infer_labels(w, b, 1).tolist() == [3]


def test_negative_rows_of_a_soft_target_are_its_classes() -> None:
    y = 0.6 * torch.eye(CLASSES)[[3]] + 0.4 * torch.eye(CLASSES)[[7]]
    w, _ = gradient_of(y, torch.zeros(1, CLASSES), torch.ones(1, 7))
    assert (w.sum(1) < 0).nonzero().flatten().tolist() == [3, 7]


def test_representation_of_one_sample_is_exact() -> None:
    h = torch.randn(1, 7, generator=torch.Generator().manual_seed(1))
    w, b = gradient_of(torch.eye(CLASSES)[[2]], torch.zeros(1, CLASSES), h)
    assert torch.allclose(representation(w, b), h[0], atol=1e-5)


def test_a_label_can_occur_twice() -> None:
    labels = torch.tensor([1, 1, 5, 8])
    w, b = gradient_of(torch.eye(CLASSES)[labels], torch.zeros(4, CLASSES), torch.ones(4, 7))
    assert infer_labels(w, b, 4).tolist() == labels.tolist()


def test_labels_from_a_message_of_five_steps() -> None:
    problem = victim((4, 9), steps=5).problem
    assert infer_labels_of_all(problem.model, problem.target, CLASSES, 2).tolist() == [[4, 9]]  # type: ignore[union-attr]


# L-BFGS
def test_rows_of_the_minimiser_are_independent() -> None:
    """A quadratic, the Rosenbrock function, and a row that is NaN: each is minimised as if it were the only one."""

    def value_and_grad(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        a, b = x[:, 0], x[:, 1]
        values = torch.stack([(x[0] ** 2).sum(), (1 - a[1]) ** 2 + 5 * (b[1] - a[1] ** 2) ** 2, (a[2] - 9).log()])
        return values.detach(), torch.autograd.grad(values.sum(), x)[0]

    start = torch.tensor([[3.0, -2.0], [-0.5, 0.5], [1.0, 1.0]], dtype=torch.float64)
    minima, values = minimise(value_and_grad, start, 5, no_progress)
    assert torch.allclose(minima[0], torch.zeros(2, dtype=torch.float64), atol=1e-4)
    assert torch.allclose(minima[1], torch.ones(2, dtype=torch.float64), atol=1e-4)
    assert minima[2].tolist() == [1.0, 1.0]
    assert values[:2].max() < 1e-6


# DLG and iDLG
def test_idlg_recovers_one_image_in_every_one_of_three_restarts(one: Victim) -> None:
    recovered = idlg(one.problem, 3, 15, seed=1)
    assert recovered.y.flatten().tolist() == [4, 4, 4]
    assert recovered.loss.max() < 1e-7
    assert (recovered.x - one.x).square().flatten(2).mean(2).max() < 1e-6


def test_dlg_recovers_the_image_in_at_least_one_restart(one: Victim) -> None:
    recovered = dlg(one.problem, 3, 15, seed=1)
    right = (recovered.x - one.x).square().flatten(2).mean(2) < 1e-6
    assert right.any()
    assert bool((recovered.y[0, right[0]] == 4).all())


def test_idlg_gives_the_same_result_for_a_batch_of_tries_as_for_one(one: Victim) -> None:
    """Tries are independent, so batching them only changes the speed."""
    single = idlg(one.problem, 1, 2, seed=3)
    both = idlg(one.problem, 2, 2, seed=3)
    assert torch.allclose(single.x[0, 0], both.x[0, 0], atol=1e-6)


# IG
def test_cosine_distance_depends_only_on_the_direction() -> None:
    g = {"a": torch.randn(3, 4), "b": torch.randn(2)}
    for factor, cost in ((0.1, 0.0), (50.0, 0.0), (-3.0, 2.0)):
        scaled = {name: factor * t for name, t in g.items()}
        assert float(cosine_distance(scaled, g)) == pytest.approx(cost, abs=1e-5)


def test_total_variation_of_a_ramp() -> None:
    assert total_variation(torch.arange(16.0).view(1, 1, 4, 4)) == 5


def test_ig_exceeds_20_db_after_120_iterations(one: Victim) -> None:
    recovered = ig(one.problem, 1, 120, seed=1)
    assert one.psnr(recovered.x).min() > 20
    assert recovered.x.min() >= 0
    assert recovered.x.max() <= 1


def test_ig_unrolls_five_local_steps_and_dividing_by_the_learning_rate_does_worse() -> None:
    five = victim((4, 9), steps=5, lr=1.0)
    unrolled, divided = ig(five.problem, 1, 120, seed=1), ig(five.divided, 1, 120, seed=1)
    assert five.psnr(unrolled.x) > 20
    assert five.psnr(divided.x) < 12
    assert divided.loss > 100 * unrolled.loss


def test_known_labels_are_not_inferred(one: Victim) -> None:
    from dataclasses import replace

    known = replace(one.problem, labels=torch.tensor([[7]]))
    assert known_or_inferred_labels(known).tolist() == [[7]]
    assert known_or_inferred_labels(one.problem).tolist() == [[4]]
