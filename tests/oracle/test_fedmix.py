"""FedMix: the first-order loss against a worked example and against exact mixup, the means, and plain mixing."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from toolbox import equal, federation, last_model, leaves_of, run_rounds, view_of
from torch import Tensor, nn
from torch.nn import functional as F

from unskew.methods.fedmix import MeanAugmentation
from unskew.models.model import Model
from unskew.protocol.part import Sizes
from unskew.protocol.step_view import Batch, View

X = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.float64)
Y = torch.tensor([0, 1])
MEANS = torch.tensor([[0.2, 0.4], [0.1, 0.3]], dtype=torch.float64)
LABELS = torch.tensor([[0.5, 0.5], [0.2, 0.8]], dtype=torch.float64)
SIZES = (25, 10, 9, 1)


def linear() -> Model:
    """W = [[1, -1], [.5, 2]] on two inputs."""
    layer = nn.Linear(2, 2, bias=False)
    layer.weight.data = torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    return Model(nn.Sequential(nn.Flatten(), layer), dtype=torch.float64)


def step(model: Model, x: Tensor, y: Tensor, means: Tensor, labels: Tensor, **fields: Any) -> tuple[View, dict]:
    leaves = leaves_of(model)
    streams = {"means": Batch(means, labels, torch.ones(len(x), dtype=x.dtype))}
    return view_of(model, leaves, x, y, streams=streams, **fields), leaves


def taylor(lam: float, **fields: Any) -> MeanAugmentation:
    return MeanAugmentation(variant="taylor", lam=lam, **fields)


@pytest.mark.papers
@pytest.mark.parametrize(("slope", "total"), [("paper", 4.360756), ("exact", 4.359472)])
def test_loss_of_two_rows_matches_the_spec(slope: str, total: float) -> None:
    """4.060949 + 0.286967 + 0.012841; exact mixup would be 4.358908, the derivative divided twice by b 4.354336."""
    view, _ = step(linear(), X, Y, MEANS, LABELS)
    assert taylor(0.1, slope=slope).loss(view).item() == pytest.approx(total, abs=5e-7)


@pytest.mark.papers
def test_three_terms_and_variants_of_other_code_match_the_spec() -> None:
    """Means of 0 remove the third term; own labels in place of the means' leave the first without its 1 - lambda."""
    own = F.one_hot(Y, 2).double()
    total, two, one = (
        taylor(0.1).loss(step(linear(), X, Y, means, labels)[0]).item()
        for means, labels in ((MEANS, LABELS), (0 * MEANS, LABELS), (0 * MEANS, own))
    )
    first, slope = 0.9 * one, total - two
    assert (first, two - first, slope) == pytest.approx((4.060949, 0.286967, 0.012841), abs=5e-7)
    assert two + slope / 2 == pytest.approx(4.354336, abs=5e-7)  # divided by the batch once more
    assert two + 0.9 * slope / 2 == pytest.approx(4.353694, abs=5e-7)
    exact = F.cross_entropy(linear().run(linear().initial, 0.9 * X + 0.1 * MEANS), 0.9 * own + 0.1 * LABELS)
    assert exact.item() == pytest.approx(4.358908, abs=5e-7)


def test_lambda_zero_is_cross_entropy() -> None:
    view, _ = step(linear(), X, Y, MEANS, LABELS)
    assert taylor(0.0).loss(view).item() == F.cross_entropy(view.logits, Y).item()


def smooth(norm: bool = False) -> Model:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        extra = [nn.BatchNorm1d(8)] if norm else []
        return Model(
            nn.Sequential(nn.Sequential(nn.Linear(5, 8), *extra, nn.Tanh()), nn.Linear(8, 3)), dtype=torch.float64
        )


def data(b: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gen = torch.Generator().manual_seed(0)
    x, means = (torch.randn(b, 5, generator=gen, dtype=torch.float64) for _ in range(2))
    return x, torch.arange(b) % 3, means, torch.randn(b, 3, generator=gen, dtype=torch.float64).softmax(1)


@pytest.mark.parametrize("slope", ["paper", "exact"])
def test_the_error_against_exact_mixup_is_of_second_order(slope: str) -> None:
    """Halving lambda quarters the error."""
    x, y, means, labels = data()
    errors = []
    for lam in (0.1, 0.05, 0.025, 0.0125):
        view, leaves = step(smooth(), x, y, means, labels)
        z = smooth().run(leaves, (1 - lam) * x + lam * means)
        exact = F.cross_entropy(z, (1 - lam) * F.one_hot(y, 3).double() + lam * labels)
        errors.append(abs((taylor(lam, slope=slope).loss(view) - exact).item()))
    ratios = [a / b for a, b in pairwise(errors)]
    assert all(3.6 < ratio < 4.6 for ratio in ratios), ratios


@pytest.mark.parametrize("norm", [False, True])
def test_gradients_of_the_weights_are_those_of_a_double_backward(norm: bool) -> None:
    """Also with BatchNorm in train mode, whose statistics are updated as by a single pass."""
    x, y, means, labels = data()
    model, lam = smooth(norm), 0.2
    view, leaves = step(model, x, y, means, labels)
    actual = torch.autograd.grad(taylor(lam).loss(view), list(leaves.values()))
    s = ((1 - lam) * x).requires_grad_()
    reference = view_of(model, leaves, s, y)
    z = reference.logits
    (slope,) = torch.autograd.grad(F.cross_entropy(z, y, reduction="sum"), s, create_graph=True)
    loss = (1 - lam) * F.cross_entropy(z, y) + lam * F.cross_entropy(z, labels) + lam * (slope * means).sum(1).mean()
    want = torch.autograd.grad(loss, list(leaves.values()))
    torch.testing.assert_close(actual, want, rtol=1e-10, atol=1e-12)
    for name, tensor in view._pass.buffers.items():
        torch.testing.assert_close(tensor, reference._pass.buffers[name], rtol=1e-12, atol=1e-13)


def test_plain_mixing_has_one_weight_for_a_batch() -> None:
    x, y, means, labels = data()
    draws = MeanAugmentation().draws("steps", Sizes(60, 7, 6, 3, {}), np.random.default_rng(0))
    assert draws["beta"].shape == (7,)
    for beta in (0.3, 1.0):
        view, leaves = step(smooth(), x, y, means, labels, draws={"beta": torch.tensor(beta, dtype=torch.float64)})
        z = smooth().run(leaves, beta * x + (1 - beta) * means)
        want = F.cross_entropy(z, beta * F.one_hot(y, 3).double() + (1 - beta) * labels)
        assert MeanAugmentation().loss(view).item() == pytest.approx(want.item(), rel=1e-12)
        if beta == 1:
            assert want.item() == pytest.approx(F.cross_entropy(view.logits, y).item(), rel=1e-14)


def test_means_are_of_disjoint_groups_and_the_rest_is_dropped() -> None:
    """25 rows give two means of ten, 10 give one; 9 rows and 1 give none, which is an entry of 0 bytes."""
    fed = federation("fedmix", SIZES)
    (snap, _), *_ = run_rounds(fed, 2)
    source, state = fed.engine.context.client_rows, snap.parts["mix"]
    assert {e.client: e.bytes for e in snap.ledger.entries if (e.artefact, e.direction) == ("means", "up")} == {
        0: 2 * 40, 1: 40, 2: 0, 3: 0,
    }  # fmt: skip
    rows = source.index[1]
    torch.testing.assert_close(state["means"][2], source.prepare(source.x[rows]).double().mean(0), rtol=1e-12, atol=0)
    torch.testing.assert_close(state["labels"][2], F.one_hot(source.y[rows], 3).double().mean(0))
    pick = fed.engine.context.plan.part_draws(fed.method.parts[-1], "share", 1, 0, Sizes(25, 0, 4, 3, {}))["pick"]
    assert pick.shape == (2, 10)
    assert len(set(pick.flatten().tolist())) == 20


def test_means_are_of_shuffled_rows_and_not_of_neighbours() -> None:
    """Groups are those of the plan: no group is a run of consecutive rows, and clients have different groups."""
    sizes = (25, 25, 20)
    fed = federation([{"fedmix": {"group": 5}}], sizes)
    ((snap, _),) = run_rounds(fed, 1)
    source, part, plan = fed.engine.context.client_rows, fed.method.parts[-1], fed.engine.context.plan
    picks = [plan.part_draws(part, "share", 1, k, Sizes(n, 0, 4, 3, {}))["pick"] for k, n in enumerate(sizes)]
    for size, pick in zip(sizes, picks):
        assert sorted(pick.flatten().tolist()) == list(range(size))
        assert not (pick.sort(1).values.diff(dim=1) == 1).all(1).any()
    assert not torch.equal(picks[0], picks[1])
    rows = torch.cat([source.index[k][pick] for k, pick in enumerate(picks)])
    torch.testing.assert_close(
        snap.parts["mix"]["means"], source.prepare(source.x[rows]).double().mean(1), rtol=1e-12, atol=1e-14
    )
    torch.testing.assert_close(snap.parts["mix"]["labels"], F.one_hot(source.y[rows], 3).double().mean(1))


def test_same_class_means_have_one_label() -> None:
    """Every mean label is one-hot; groups of two labels are dropped."""
    fed = federation([{"fedmix": {"group": 3, "same_class": True}}], SIZES)
    (snap, _), *_ = run_rounds(fed, 1)
    labels, source = snap.parts["mix"]["labels"], fed.engine.context.client_rows
    assert labels.max(1).values.eq(1).all()
    assert 5 < len(labels) <= sum(n // 3 for n in SIZES)
    mean, label = snap.parts["mix"]["means"][0], labels[0].argmax()
    held = source.prepare(source.x[source.index[0]]).double()[source.y[source.index[0]] == label]
    combinations = torch.combinations(torch.arange(len(held)), 3)
    assert (held[combinations].mean(1) - mean).abs().sum(1).min() < 1e-12


def test_means_are_sent_once() -> None:
    snaps = [snap for snap, _ in run_rounds(federation("fedmix", SIZES), 2)]
    sent = [{(e.direction, e.kind) for e in snap.ledger.entries if e.part == "mix"} for snap in snaps]
    assert sent[0] == {("up", "statistics"), ("up", "labels"), ("down", "statistics"), ("down", "labels")}
    assert sent[1] == set()


def test_lambda_zero_or_no_client_with_a_group_is_fedavg() -> None:
    """Bit for bit, also with BatchNorm, because the net runs once per step in both methods."""
    for norm in (False, True):
        plain = last_model(federation("fedavg", norm=norm), 3)
        assert equal(last_model(federation([{"fedmix": {"group": 99}}], norm=norm), 3), plain)
        off = [{"fedmix": {"variant": "taylor", "lam": 0.0, "group": 2}}]
        assert equal(last_model(federation(off, norm=norm), 3), plain)
