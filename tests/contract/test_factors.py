"""Gradients in factors move weights as whole ones do, for every method: a CPU has no kernel for it, but multiplies."""

import contextlib
from typing import Any

import pytest
import torch
from small import trained
from torch import Tensor
from torch.optim.sgd import sgd

from unskew.engines.stacked import kernels
from unskew.engines.stacked import lowrank_grad as factors
from unskew.engines.stacked.linear_grad import product
from unskew.engines.stacked.lowrank_grad import LowRankCapture, LowRankGrad
from unskew.protocol.optimiser import GradientRule


def multiplied(seen: list[int]) -> Any:
    """torch's SGD, which notes how many of its gradients came in factors."""

    def descend(leaves: list[Tensor], grads: list[Tensor | LowRankGrad], velocities: Any, **how: Any) -> None:
        seen.append(sum(isinstance(g, LowRankGrad) for g in grads))
        sgd(
            leaves,
            [g.whole(leaf.dtype) if isinstance(g, LowRankGrad) else g for leaf, g in zip(leaves, grads)],
            velocities,
            **how,
        )

    return descend


def test_every_method_trains_alike(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want, seen = trained(method, "stacked"), list[int]()
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: multiplied(seen))
    found = trained(method, "stacked")
    for name, tensor in want.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-11)
    assert set(seen) == {3}  # all of the net's weights, and no bias


@pytest.mark.parametrize("keys", [{"clip": 1.0}, {"optimiser": "adam", "momentum": 0.0}])
def test_gradients_are_whole_where_they_are_needed(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    want, seen = trained("fedavg", "stacked", **keys), list[int]()
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: multiplied(seen))
    torch.testing.assert_close(trained("fedavg", "stacked", **keys), want)
    assert not any(seen)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def gradient(loss: Any, weights: Tensor) -> tuple[Tensor, Tensor | LowRankGrad]:
    """By PyTorch, and by factors."""
    (want,), found = torch.autograd.grad(loss(), [weights]), LowRankCapture([weights])
    with found.watching():
        value = loss()
    return want, found.gradients(value, [weights])[0]


def test_used_twice_and_pulled_at_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x, y = leaf(2, 3, 4), torch.randn(2, 5, 4).double(), torch.randn(2, 7, 4).double()
    want, found = gradient(
        lambda: (
            product(x, weights, torch.float64).square().sum()
            + product(y, weights, torch.float64).sin().sum()
            + weights.cos().sum()
        ),
        weights,
    )
    assert isinstance(found, LowRankGrad)
    assert (found.back.shape, found.rows.shape) == ((2, 12, 3), (2, 12, 4))
    torch.testing.assert_close(found.whole(torch.float64), want)


def test_a_step_that_failed_leaves_nothing_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x, found = leaf(2, 3, 4), torch.randn(2, 5, 4).double().requires_grad_(), None
    taker = LowRankCapture([weights])
    fails = [True]

    def fail(g: Tensor) -> None:
        if fails:
            raise RuntimeError(fails.pop())

    for _ in range(2):
        with taker.watching():
            rows = x * 1.0
            loss = product(rows, weights, torch.float64).square().sum()
        rows.register_hook(fail)  # after the factors were taken
        with contextlib.suppress(RuntimeError):
            found = taker.gradients(loss, [weights, x])[0]
    assert isinstance(found, LowRankGrad)
    assert found.back.shape == (2, 5, 3)


def test_a_turned_view_of_a_leaf_has_a_whole_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x = leaf(2, 4, 4), torch.randn(2, 5, 4).double()
    want, found = gradient(lambda: product(x, weights.transpose(1, 2), torch.float64).square().sum(), weights)
    assert isinstance(found, Tensor)
    torch.testing.assert_close(found, want)


def test_weights_are_cast_as_asked_and_no_further() -> None:
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4)
    assert product(x, weights, torch.float32).dtype == torch.float32
    with pytest.raises(RuntimeError):
        product(x, weights, torch.float64)


def test_a_gradient_of_a_gradient_goes_through_a_cast() -> None:
    """As with bf16 rows: the weights are float64 here and the product float32."""
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4, requires_grad=True)

    def second(found: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(found.pow(2).sum(), [x], create_graph=True)
        return torch.autograd.grad(first.square().sum(), [weights])[0]

    want = second(torch.bmm(x, weights.float().transpose(1, 2)))
    torch.testing.assert_close(second(product(x, weights, torch.float32)), want, rtol=1e-4, atol=1e-4)


def test_a_loss_that_asks_for_a_gradient_gets_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the step's own backward leaves factors behind."""
    monkeypatch.setattr(kernels, "LARGE", 1)
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()

    def loss() -> Tensor:
        inner = product(x, weights, torch.float64).pow(3).sum()
        (first,) = torch.autograd.grad(inner, [weights], create_graph=True)
        return inner + first.square().sum()

    want, found = gradient(loss, weights)
    torch.testing.assert_close(found.whole(torch.float64) if isinstance(found, LowRankGrad) else found, want)


@pytest.mark.parametrize(
    ("shape", "rows", "factored"), [((2, 3, 4), 5, True), ((2, 3, 4), 65, False), ((2, 1, 4), 5, False)]
)
def test_small_weights_and_many_rows_have_whole_gradients(
    shape: tuple[int, int, int], rows: int, factored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "LARGE", 12)
    weights, x = leaf(*shape), torch.randn(2, rows, 4).double()
    want, found = gradient(lambda: product(x, weights, torch.float64).square().sum(), weights)
    assert isinstance(found, LowRankGrad) == factored
    torch.testing.assert_close(found.whole(torch.float64) if isinstance(found, LowRankGrad) else found, want)


def test_nobody_watches_nobody_takes() -> None:
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()
    assert factors.who_takes(weights, x) is None
    assert GradientRule().gradients(product(x, weights, torch.float64).sum(), [weights])[0].shape == weights.shape
