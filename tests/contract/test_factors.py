"""Gradients in factors move weights as whole ones do, for every method: a CPU has no kernel for it, but multiplies."""

from typing import Any

import pytest
import torch
from small import federation
from torch import Tensor
from torch.optim.sgd import sgd

from unskew.core.optimiser import Descent
from unskew.core.state import State
from unskew.engine import factors, kernels
from unskew.engine.factors import Factored, Factors
from unskew.engine.product import product

LOCAL = {"epochs": 2, "batch": 4, "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}


def multiplied(seen: list[int]) -> Any:
    """torch's SGD, which notes how many of its gradients came in factors."""

    def descend(leaves: list[Tensor], grads: list[Tensor | Factored], velocities: Any, **how: Any) -> None:
        seen.append(sum(isinstance(g, Factored) for g in grads))
        sgd(leaves, [_whole(g) if isinstance(g, Factored) else g for g in grads], velocities, **how)

    return descend


def _whole(g: Factored) -> Tensor:  # in float64, as the suite trains
    return torch.bmm(g.back.transpose(1, 2), g.rows) + (0 if g.beside is None else g.beside)


def after_two_rounds(method: str, **keys: Any) -> State:
    fed = federation(method, "stacked", local=LOCAL | keys)
    snap = fed.start()
    for _ in range(2):
        snap, _ = fed.play(snap)
        fed.store.commit()
    return snap.model


def test_every_method_trains_alike(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want, seen = after_two_rounds(method), list[int]()
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels, "descent", lambda device: multiplied(seen))
    found = after_two_rounds(method)
    for name, tensor in want.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-11)
    assert set(seen) == {3}  # all of the net's weights, and no bias


@pytest.mark.parametrize("keys", [{"clip": 1.0}, {"optimiser": "adam", "momentum": 0.0}])
def test_gradients_are_whole_where_they_are_needed(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    want, seen = after_two_rounds("fedavg", **keys), list[int]()
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels, "descent", lambda device: multiplied(seen))
    torch.testing.assert_close(after_two_rounds("fedavg", **keys), want)
    assert not any(seen)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def gradient(loss: Any, weights: Tensor) -> tuple[Tensor, Tensor | Factored]:
    """By PyTorch, and by factors."""
    (want,), found = torch.autograd.grad(loss(), [weights]), Factors([weights])
    with found.watching():
        value = loss()
    return want, found.gradients(value, [weights])[0]


def test_used_twice_and_pulled_at_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x, y = leaf(2, 3, 4), torch.randn(2, 5, 4).double(), torch.randn(2, 7, 4).double()
    want, found = gradient(
        lambda: product(x, weights).square().sum() + product(y, weights).sin().sum() + weights.cos().sum(), weights
    )
    assert isinstance(found, Factored)
    assert (found.back.shape, found.rows.shape) == ((2, 12, 3), (2, 12, 4))
    torch.testing.assert_close(_whole(found), want)


def test_a_loss_that_asks_for_a_gradient_gets_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the step's own backward leaves factors behind."""
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()

    def loss() -> Tensor:
        inner = product(x, weights).pow(3).sum()
        (first,) = torch.autograd.grad(inner, [weights], create_graph=True)
        return inner + first.square().sum()

    want, found = gradient(loss, weights)
    torch.testing.assert_close(_whole(found) if isinstance(found, Factored) else found, want)


@pytest.mark.parametrize(
    ("shape", "rows", "factored"), [((2, 3, 4), 5, True), ((2, 3, 4), 65, False), ((2, 1, 4), 5, False)]
)
def test_small_weights_and_many_rows_have_whole_gradients(
    shape: tuple[int, int, int], rows: int, factored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "LARGE", 12)
    weights, x = leaf(*shape), torch.randn(2, rows, 4).double()
    want, found = gradient(lambda: product(x, weights).square().sum(), weights)
    assert isinstance(found, Factored) == factored
    torch.testing.assert_close(_whole(found) if isinstance(found, Factored) else found, want)


def test_nobody_watches_nobody_takes() -> None:
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()
    assert factors.who_takes(weights, x) is None
    assert Descent().gradients(product(x, weights).sum(), [weights])[0].shape == weights.shape
