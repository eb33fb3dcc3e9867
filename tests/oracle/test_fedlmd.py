"""FedLMD: the majority rule, the masked divergence against worked examples, switching, and sums with prox and avgm."""

from typing import Any

import pytest
import torch
from distilling import (
    TINY,
    Z_G,
    Y,
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
from toolbox import equal, federation, last_model, run_rounds

from unskew.describe.method_cost import measure
from unskew.methods.fedlmd import LabelMaskingDistillation
from unskew.methods.fedntd import NotTrueDistillation
from unskew.methods.shared.distillation_losses import majority_classes, masked_kl, other_classes

SIZES = (3, 5, 7, 4)  # rows of labels 0, 1, 2, 0, ...: client 1 has two of 0 and 1 and one of 2, so M = {0, 1}


@pytest.mark.parametrize(
    ("counts", "labels"),
    [
        ((12, 11, 10, 9, 58), {4}),
        ((50, 30, 20, 0, 0, 0, 0, 0, 0, 0), {0, 1, 2}),
        ((7, 7, 7, 7, 7, 7, 7, 7, 7, 7), set()),
        ((3, 3, 2), {0, 1}),
        ((0, 1), {1}),
    ],
)
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_majority_is_more_than_the_mean_over_all_classes(counts: tuple, labels: set, precision: torch.dtype) -> None:
    """Strictly more than n_k / C, absent classes counted: equal counts have no majority."""
    actual = majority_classes(torch.tensor(counts, dtype=precision))
    assert set(actual.nonzero().flatten().tolist()) == labels


def test_majority_is_never_all_labels() -> None:
    draws = torch.randint(0, 50, (1000, 7), generator=torch.Generator().manual_seed(0)).float()
    assert not any(majority_classes(counts).all() for counts in draws)


@pytest.mark.papers
@pytest.mark.parametrize(
    ("labels", "at_tau_1", "at_tau_2"),
    [
        ({0}, 0.030201, 0.031069),
        ({0, 1}, 1.094344, 2.824771),
        ({1}, 1.094344, 2.824771),
        ({0, 1, 2}, 2.407606, 6.721079),
        ({1, 2}, 2.407606, 6.721079),
        ({1, 2, 3}, 0.0, 0.0),
    ],
)
def test_loss_matches_the_table_of_the_spec(labels: set[int], at_tau_1: float, at_tau_2: float) -> None:
    """tau 1 and 2 (tau^2 included); M = {1, 2, 3} leaves the teacher no class (the released code gives 166.879)."""
    for tau, want in ((1.0, at_tau_1), (2.0, at_tau_2)):
        actual = term(LabelMaskingDistillation(tau=tau), counts=counts_of(labels))
        assert actual.item() == pytest.approx(want, abs=TINY)


def test_masking_all_classes_gives_zero_and_no_gradient() -> None:
    """M cannot contain all labels, but if it did the divergence would be 0; the released code gives 0.030201."""
    z = Z.clone().requires_grad_()
    loss = masked_kl(Z_G, z, torch.zeros(1, 4, dtype=torch.bool), other_classes(Y, z), 1.0)
    (gradient,) = torch.autograd.grad(loss.sum(), z)
    assert loss.item() == 0
    assert not gradient.any()


def test_rows_without_a_kept_class_count_as_zero_in_the_mean() -> None:
    """M = {1, 2, 3}: label 0 keeps no class and label 1 only class 0, so the mean is half of the second sample's."""
    part, both = LabelMaskingDistillation(), torch.tensor([0, 1])
    z = Z.repeat(2, 1).requires_grad_()
    loss = term(part, z, Z_G.repeat(2, 1), both, counts=counts_of({1, 2, 3}))
    single = term(part, Z, Z_G, both[1:], counts=counts_of({1, 2, 3}))
    assert single.item() == pytest.approx(-torch.log_softmax(Z[0, [0, 2, 3]], 0)[0].item(), rel=1e-12)
    torch.testing.assert_close(loss, single / 2)
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(gradient).all()
    assert not gradient[0].any()


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_huge_logits_stay_finite_in_single_precision(scale: float) -> None:
    z = (scale * Z).float().requires_grad_()
    loss = term(LabelMaskingDistillation(tau=0.5), z, -scale * Z_G.float(), counts=counts_of({1, 2}).float())
    (gradient,) = torch.autograd.grad(loss, z)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient).all()


def test_teacher_sums_to_one_on_kept_classes() -> None:
    """Lowering log p^S by a constant on U raises the term by the constant times the sum of p^T there."""
    u, v = torch.tensor([[False, False, True, True]]), other_classes(Y, Z)
    student = torch.where(v, Z, -1e9)
    shifted = torch.where(u, student - 1, student)
    moved = masked_kl(Z_G, shifted, u, v, 1.0) - masked_kl(Z_G, student, u, v, 1.0)
    change = torch.logsumexp(shifted, 1) - torch.logsumexp(student, 1)
    torch.testing.assert_close(moved, 1 + change)


def test_with_only_the_label_or_no_class_as_majority_loss_is_fedntds() -> None:
    """With M = {y} or M empty, the term is the same bit for bit."""
    z, z_g = random_logits(6), random_logits(6, seed=1)
    for label in range(4):
        y = torch.full((6,), label)
        want = term(NotTrueDistillation(tau=2.0), z, z_g, y)
        for counts in (counts_of({label}), counts_of(set())):
            assert torch.equal(term(LabelMaskingDistillation(tau=2.0), z, z_g, y, counts=counts), want)


def test_received_model_has_zero_loss_only_without_other_majority_labels() -> None:
    """If teacher = student, the term is 0 with M = {y} and above 0 with another majority label."""
    part = LabelMaskingDistillation()
    assert term(part, Z, Z, counts=counts_of({0})).item() == 0
    assert term(part, Z, Z, counts=counts_of({0, 1})).item() > 0.1


def test_majority_labels_are_pushed_down_and_the_target_gets_no_gradient() -> None:
    z = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(term(LabelMaskingDistillation(), z, counts=counts_of({0, 1})), z)
    assert gradient[0, 0] == 0
    assert gradient[0, 1] > 0  # gradient descent lowers the logit


@pytest.mark.parametrize("labels", [set(), {0}, {1, 2}])
def test_invariants_of_distillation_hold(labels: set[int]) -> None:
    part, counts = LabelMaskingDistillation(beta=0.7, tau=2.0), counts_of(labels)
    check_never_negative(part, counts=counts)
    check_gradients(part, counts=counts)
    check_filler_rows_are_ignored(part, counts=counts)


def test_soft_labels_stand_for_their_largest_class() -> None:
    z, z_g, y = random_logits(3), random_logits(3, seed=1), torch.tensor([0, 1, 3])
    soft = 0.7 * torch.eye(4, dtype=torch.float64)[y] + 0.3 / 4
    part, counts = LabelMaskingDistillation(), counts_of({1})
    assert torch.equal(term(part, z, z_g, soft, counts=counts), term(part, z, z_g, y, counts=counts))


def test_beta_zero_is_fedavg() -> None:
    check_strength_zero_is_fedavg("fedlmd", beta=0.0)


def test_traffic_and_state_equal_fedavg() -> None:
    check_traffic_and_state_equal_fedavg("fedlmd")
    assert measure("fedlmd").cost.passes == 1


def test_clients_without_majority_train_as_in_fedntd_and_others_do_not() -> None:
    same, apart = (
        [last_model(federation(method, sizes=sizes), 2) for method in ("fedlmd", "fedntd")]
        for sizes in ((3, 6, 9), SIZES)
    )
    assert equal(*same)
    assert not equal(*apart)


ENGINES = [{"name": "loop", "workers": 1}, {"name": "stacked"}]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine["name"])
def test_switch_runs_the_first_rounds_without_teacher(engine: dict[str, Any]) -> None:
    """R = 2: rounds 1 and 2 are FedLMD-Tf, later rounds FedLMD from that model; logged terms have the right names."""
    fed = federation([{"fedlmd": {"switch": 2, "tau": 2.0}}], engine=engine)
    free = federation([{"fedlmd-tf": {"tau": 2.0}}], engine=engine)
    full = federation([{"fedlmd": {"tau": 2.0}}], engine=engine)
    rounds = list(run_rounds(fed, 4))
    *_, (snap, _) = run_rounds(free, 2)
    for actual, want in zip(rounds, [first for first, _ in run_rounds(free, 2)]):
        assert equal(actual[0].model, want.model)
    for actual, _ in rounds[2:]:
        snap, _ = full.run_round(snap)
        assert equal(actual.model, snap.model)
    named = [set(report.terms[0]) for _, report in rounds]
    assert named == [{"ce", "lmd-tf"}] * 2 + [{"ce", "lmd"}] * 2


def test_switch_in_the_last_round_is_fedlmd_tf_and_in_round_zero_fedlmd() -> None:
    """R = T is FedLMD-Tf, R = 0 is FedLMD."""
    assert equal(last_model(federation([{"fedlmd": {"switch": 3}}]), 3), last_model(federation("fedlmd-tf"), 3))
    assert equal(last_model(federation([{"fedlmd": {"switch": 0}}]), 3), last_model(federation("fedlmd"), 3))


@pytest.mark.parametrize("sum_of", ["fedlmd+prox", "fedlmd+avgm", "fedlmd+prox+avgm", "fedlmd-tf+prox+avgm"])
def test_sums_train_alike_in_both_engines(sum_of: str) -> None:
    loop, stacked = (last_model(federation(sum_of, engine=engine), 3) for engine in ENGINES)
    torch.testing.assert_close(stacked, loop, rtol=1e-9, atol=1e-11)
    assert not equal(loop, last_model(federation("fedlmd"), 3))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine["name"])
def test_sum_with_strengths_zero_is_fedlmd_bit_for_bit(engine: dict[str, Any]) -> None:
    plain = last_model(federation("fedlmd", engine=engine), 3)
    for spec in (
        ["fedlmd", {"prox": {"mu": 0.0}}],
        ["fedlmd", {"avgm": {"beta": 0.0}}],
        ["fedlmd", {"prox": {"mu": 0.0}}, {"avgm": {"beta": 0.0}}],
    ):
        assert equal(last_model(federation(spec, engine=engine), 3), plain)


def test_sum_adds_the_terms() -> None:
    """Table 5: the proximal term is added to FedLMD's, both are logged, and momentum replaces the mean."""
    fed = federation("fedlmd+prox+avgm")
    ((snap, report),) = run_rounds(fed, 1)
    assert set(report.terms[0]) == {"ce", "lmd", "prox"}
    assert set(snap.parts) == {"avgm"}
