"""MOON: the contrastive loss by hand, which models are compared, and its reductions to FedAvg."""

import math

import pytest
import torch
from toolbox import equal, federation, last_model, leaves_of, messages, network, run_rounds, view_of

from unskew.base.tree import State
from unskew.methods.moon import Moon, contrast
from unskew.models.model import Model
from unskew.protocol.step_view import View

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
Y = torch.tensor([0, 1, 2, 0])


def shifted(state: State, by: float) -> State:
    return {name: t + by for name, t in state.items()}


def step(leaves: State, start: State, previous: State) -> View:
    return view_of(Model(network(), dtype=torch.float64), leaves, X, Y, start=start, part_state=previous)


def trained() -> State:
    """Local parameters a little away from the initial ones."""
    model = Model(network(), dtype=torch.float64)
    return {name: (w + 0.05).detach().requires_grad_() for name, w in leaves_of(model).items()}


def initial() -> State:
    return Model(network(), dtype=torch.float64).initial


@pytest.mark.papers
def test_value_matches_a_calculation_by_hand() -> None:
    """cos 1 to the received, cos 0 to the previous, tau 0.5: ln(1 + e^{-2}) = 0.126928; swapped: 2 more."""
    z, near, far = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert float(contrast(z, near, far, 0.5)) == pytest.approx(0.126928, abs=5e-7)
    assert float(contrast(z, far, near, 0.5)) == pytest.approx(2.126928, abs=5e-7)


def test_loss_is_mu_times_the_mean_over_real_rows() -> None:
    """Rows with loss a and b, and a filler row: mu (a + b) / 2."""
    model, leaves = Model(network(), dtype=torch.float64), trained()
    w = torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    start, previous = model.initial, shifted(model.initial, 0.2)
    view = view_of(model, leaves, X, Y, w, start=start, part_state=previous)
    z, z_g, z_p = (model.run(state, X, 0, 1) for state in (leaves, start, previous))
    want = 0.3 * contrast(z, z_g, z_p, 0.5)[:2].mean()
    torch.testing.assert_close(Moon(mu=0.3, tau=0.5).loss(view), want)
    assert abs(want.item() - 0.3 * math.log(2)) > 1e-3


def test_equal_teachers_give_ln_2_and_no_gradient() -> None:
    """With z_g = z_p the loss is -log(1/2) = 0.693147 for any z, so there is no gradient."""
    leaves, start = trained(), initial()
    loss = Moon(mu=1.0).loss(step(leaves, start, start))
    assert loss.item() == pytest.approx(math.log(2), rel=1e-14)
    gradients = torch.autograd.grad(loss, leaves.values(), allow_unused=True)
    assert all(g is None or not g.any() for g in gradients)


def test_gradient_reaches_the_body_and_not_the_classifier() -> None:
    leaves, start = trained(), initial()
    loss = Moon(mu=1.0).loss(step(leaves, start, shifted(start, 0.2)))
    gradients = dict(zip(leaves, torch.autograd.grad(loss, leaves.values(), allow_unused=True)))
    assert gradients["0.0.weight"].abs().max() > 1e-6
    assert gradients["1.weight"] is None


def test_received_and_previous_model_get_no_gradient() -> None:
    leaves, start, previous = trained(), initial(), shifted(initial(), 0.2)
    teachers = [t.requires_grad_() for state in (start, previous) for t in state.values()]
    loss = Moon(mu=1.0).loss(step(leaves, start, previous))
    assert all(g is None for g in torch.autograd.grad(loss, teachers, allow_unused=True))


def test_teachers_are_in_eval_mode() -> None:
    """With BatchNorm, z uses the batch's statistics; z_g and z_p use the running ones, which do not change."""
    model = Model(network(norm=True), dtype=torch.float64)
    start, previous = model.initial, shifted(model.initial, 0.2)
    before = {name: t.clone() for name, t in start.items()}
    loss = Moon(mu=1.0).loss(view_of(model, leaves_of(model), X, Y, start=start, part_state=previous))
    z = model.block({name: t.clone() for name, t in start.items()}, X, 0, train=True)
    want = contrast(z, model.run(start, X, 0, 1), model.run(previous, X, 0, 1), 0.5).mean()
    torch.testing.assert_close(loss.detach(), want)
    assert equal(start, before)


@pytest.mark.parametrize("zeroed", [("local",), ("start", "previous"), ("local", "start", "previous")])
def test_loss_and_gradient_are_finite_for_representations_of_zeros(zeroed: tuple[str, ...]) -> None:
    """A bias of -100 makes the ReLU's output all zeros: the cosine uses its eps, so loss and gradient are finite."""

    def state(name: str) -> State:
        kept = {n: t.clone() for n, t in initial().items()}
        return kept | ({"0.0.bias": kept["0.0.bias"] - 100} if name in zeroed else {})

    leaves = {name: t.requires_grad_() for name, t in state("local").items()}
    loss = Moon(mu=1.0).loss(step(leaves, state("start"), state("previous")))
    gradients = torch.autograd.grad(loss, leaves.values(), allow_unused=True)
    assert torch.isfinite(loss)
    assert all(torch.isfinite(g).all() for g in gradients if g is not None)


def test_gradient_is_finite_at_a_zero_vector() -> None:
    """Exactly at z = 0, where the norm has no derivative."""
    z = torch.zeros(2, 3, requires_grad=True)
    contrast(z, torch.ones(2, 3), torch.zeros(2, 3), 0.5).sum().backward()
    assert torch.isfinite(z.grad).all()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_mu_zero_is_fedavg_bit_for_bit(precision: str) -> None:
    neutral = federation([{"moon": {"mu": 0.0}}], precision=precision, participation=0.5)
    plain = federation("fedavg", precision=precision, participation=0.5)
    assert equal(last_model(neutral, 4), last_model(plain, 4))


def test_first_round_is_fedavg() -> None:
    """z_p = z_g = initial model: the term is mu ln 2 at every step and has no gradient."""
    ((snap, report),) = run_rounds(federation([{"moon": {"mu": 5.0}}]), 1)
    torch.testing.assert_close(snap.model, last_model(federation("fedavg"), 1), rtol=0, atol=1e-12)
    for terms in report.terms.values():
        assert float(terms["moon"]) == pytest.approx(5 * math.log(2), rel=1e-12)


def test_second_round_is_not_fedavg() -> None:
    a, b = last_model(federation([{"moon": {"mu": 5.0}}]), 2), last_model(federation("fedavg"), 2)
    assert max(float((a[name] - b[name]).abs().max()) for name in a) > 1e-4


def test_client_keeps_its_final_local_model() -> None:
    """Including statistics; a client that was never sampled has the initial model, not the current global one."""
    fed = federation("moon", participation=0.5, norm=True, rounds=2)
    kept = dict.fromkeys(range(4), fed.model.initial)
    for snap, _ in run_rounds(fed, 2):
        kept |= {int(k): message["average"]["weights"] for k, message in messages(snap).items()}
        assert len(messages(snap)) == 2
        for k, want in kept.items():
            assert equal(fed.store.get(k)["moon"], want)
            assert not equal(want, snap.model)


def test_traffic_equals_fedavg() -> None:
    ((moon, _),), ((plain, _),) = (run_rounds(federation(name), 1) for name in ("moon", "fedavg"))
    assert moon.ledger.bytes_up == plain.ledger.bytes_up
    assert moon.ledger.bytes_down == plain.ledger.bytes_down
