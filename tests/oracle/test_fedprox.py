"""FedProx: mu/2 ||w - w^t||^2 over the trained tensors."""

import pytest
import torch
from toolbox import equal, federation, last_model, leaves_of, messages, network, run_rounds, view_of
from torch import nn

from unskew.methods.fedprox import Proximal
from unskew.models.model import Model

X, Y = torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)


def linear() -> Model:
    """A model with three parameters and no buffers."""
    return Model(nn.Sequential(nn.Flatten(), nn.Linear(3, 1, bias=False)), dtype=torch.float64)


@pytest.mark.papers
def test_value_and_gradient_match_a_calculation_by_hand() -> None:
    """w^t = 0, w = (1, 2, 2), mu = 0.1: 0.05 * 9 = 0.45; gradient 0.1 w = (0.1, 0.2, 0.2)."""
    w = torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
    view = view_of(linear(), {"1.weight": w}, X, Y, start={"1.weight": torch.zeros(1, 3, dtype=torch.float64)})
    loss = Proximal(mu=0.1).loss(view)
    assert loss.item() == pytest.approx(0.45, rel=1e-14)
    (gradient,) = torch.autograd.grad(loss, w)
    assert gradient.flatten().tolist() == pytest.approx([0.1, 0.2, 0.2], rel=1e-14)


def test_value_and_gradient_are_zero_at_the_received_model() -> None:
    """w = w^t: distance 0 and gradient 0; a norm that is not squared would have no gradient there."""
    w = torch.tensor([[1.0, 2.0, 2.0]], dtype=torch.float64, requires_grad=True)
    loss = Proximal(mu=0.1).loss(view_of(linear(), {"1.weight": w}, X, Y, start={"1.weight": w.detach().clone()}))
    (gradient,) = torch.autograd.grad(loss, w)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(gradient))


def test_received_model_is_a_constant() -> None:
    """The model passed to the next round has no autograd graph, so w^t gets no gradient."""
    for snap, _ in run_rounds(federation("fedprox"), 2):
        assert not any(t.requires_grad for t in snap.model.values())


def test_running_statistics_are_not_in_the_distance() -> None:
    """The received statistics are 100 away from the local ones; only parameters are compared, and they agree."""
    model = Model(network(norm=True), dtype=torch.float64)
    start = {name: t + 100 if model.roles[name] != "parameter" else t for name, t in model.initial.items()}
    x = torch.zeros(2, 5, dtype=torch.float64)
    loss = Proximal(mu=1.0).loss(view_of(model, leaves_of(model), x, torch.tensor([0, 1]), start=start))
    assert loss.item() == 0


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_mu_zero_is_fedavg_bit_for_bit(precision: str) -> None:
    neutral = federation([{"fedprox": {"mu": 0.0}}], precision=precision)
    assert equal(last_model(neutral, 3), last_model(federation("fedavg", precision=precision), 3))


def test_larger_mu_keeps_clients_nearer_to_the_received_model() -> None:
    """Distance of the clients' models from w^0 after a round, at mu 0, 1 and 5 (lr 0.05 keeps mu = 5 stable)."""
    local = {"epochs": 5, "batch": 4, "lr": 0.05, "momentum": 0.0, "weight_decay": 0.0}
    distances = []
    for mu in (0.0, 1.0, 5.0):
        fed = federation([{"fedprox": {"mu": mu}}], local=local)
        ((snap, _),) = run_rounds(fed, 1)
        start = fed.model.initial
        sent = [m["average"]["weights"] for m in messages(snap).values()]
        distances.append(sum(float((w[name] - start[name]).pow(2).sum()) for w in sent for name in w))
    assert distances[0] > distances[1] > distances[2] > 0
