"""Low-rank gradients update weights like dense ones, with every method; on a CPU `dense_sgd` replaces the kernel."""

import contextlib
from typing import Any

import pytest
import torch
from small import trained
from torch import Tensor
from torch.optim.sgd import sgd

from unskew.engines.stacked import kernels, lowrank_grad
from unskew.engines.stacked.lowrank_grad import LowRankCapture, LowRankGrad
from unskew.engines.stacked.stacked_linear import stacked_linear
from unskew.protocol.optimiser import GradientRule


def dense_sgd(lowrank_counts: list[int]) -> Any:
    """torch's SGD on dense gradients; appends the number of low-rank ones to `lowrank_counts`."""

    def step(leaves: list[Tensor], grads: list[Tensor | LowRankGrad], velocities: Any, **options: Any) -> None:
        lowrank_counts.append(sum(isinstance(g, LowRankGrad) for g in grads))
        sgd(
            leaves,
            [g.dense(leaf.dtype) if isinstance(g, LowRankGrad) else g for leaf, g in zip(leaves, grads)],
            velocities,
            **options,
        )

    return step


def test_every_method_trains_as_with_dense_gradients(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, lowrank_counts = trained(method, "stacked"), list[int]()
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: dense_sgd(lowrank_counts))
    result = trained(method, "stacked")
    for name, tensor in expected.items():
        torch.testing.assert_close(result[name], tensor, rtol=1e-9, atol=1e-11)
    assert set(lowrank_counts) == {3}  # all of the net's weights, and no bias


@pytest.mark.parametrize("keys", [{"clip": 1.0}, {"optimiser": "adam", "momentum": 0.0}])
def test_gradients_are_dense_if_the_optimiser_needs_it(keys: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    expected, lowrank_counts = trained("fedavg", "stacked", **keys), list[int]()
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 0)
    monkeypatch.setattr(kernels, "sgd_kernel", lambda device: dense_sgd(lowrank_counts))
    torch.testing.assert_close(trained("fedavg", "stacked", **keys), expected)
    assert not any(lowrank_counts)


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def gradient(loss: Any, weights: Tensor) -> tuple[Tensor, Tensor | LowRankGrad]:
    """From PyTorch, and in low-rank form if possible."""
    (expected,), capture = torch.autograd.grad(loss(), [weights]), LowRankCapture([weights])
    with capture.capturing():
        value = loss()
    return expected, capture.gradients(value, [weights])[0]


def test_a_gradient_of_weights_used_twice_and_in_another_term_is_low_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 1)
    weights, x, y = leaf(2, 3, 4), torch.randn(2, 5, 4).double(), torch.randn(2, 7, 4).double()
    expected, result = gradient(
        lambda: (
            stacked_linear(x, weights, torch.float64).square().sum()
            + stacked_linear(y, weights, torch.float64).sin().sum()
            + weights.cos().sum()
        ),
        weights,
    )
    assert isinstance(result, LowRankGrad)
    assert (result.grad_output.shape, result.inputs.shape) == ((2, 12, 3), (2, 12, 4))
    torch.testing.assert_close(result.dense(torch.float64), expected)


def test_a_failed_step_does_not_affect_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 1)
    weights, x, result = leaf(2, 3, 4), torch.randn(2, 5, 4).double().requires_grad_(), None
    capture = LowRankCapture([weights])
    fails = [True]

    def fail(g: Tensor) -> None:
        if fails:
            raise RuntimeError(fails.pop())

    for _ in range(2):
        with capture.capturing():
            rows = x * 1.0
            loss = stacked_linear(rows, weights, torch.float64).square().sum()
        rows.register_hook(fail)  # after the factors were captured
        with contextlib.suppress(RuntimeError):
            result = capture.gradients(loss, [weights, x])[0]
    assert isinstance(result, LowRankGrad)
    assert result.grad_output.shape == (2, 5, 3)


def test_a_transposed_view_of_a_leaf_has_a_dense_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 1)
    weights, x = leaf(2, 4, 4), torch.randn(2, 5, 4).double()
    expected, result = gradient(
        lambda: stacked_linear(x, weights.transpose(1, 2), torch.float64).square().sum(), weights
    )
    assert isinstance(result, Tensor)
    torch.testing.assert_close(result, expected)


def test_weights_are_cast_to_the_given_type_and_rows_are_not() -> None:
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4)
    assert stacked_linear(x, weights, torch.float32).dtype == torch.float32
    with pytest.raises(RuntimeError):
        stacked_linear(x, weights, torch.float64)


def test_second_derivative_with_a_cast_is_correct() -> None:
    """As with bf16 rows: here the weights are float64 and the matmul float32."""
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4, requires_grad=True)

    def second(output: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(output.pow(2).sum(), [x], create_graph=True)
        return torch.autograd.grad(first.square().sum(), [weights])[0]

    expected = second(torch.bmm(x, weights.float().transpose(1, 2)))
    torch.testing.assert_close(second(stacked_linear(x, weights, torch.float32)), expected, rtol=1e-4, atol=1e-4)


def test_a_gradient_inside_a_loss_is_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the backward pass of the step itself captures factors."""
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 1)
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()

    def loss() -> Tensor:
        inner = stacked_linear(x, weights, torch.float64).pow(3).sum()
        (first,) = torch.autograd.grad(inner, [weights], create_graph=True)
        return inner + first.square().sum()

    expected, result = gradient(loss, weights)
    torch.testing.assert_close(result.dense(torch.float64) if isinstance(result, LowRankGrad) else result, expected)


@pytest.mark.parametrize(
    ("shape", "rows", "factored"), [((2, 3, 4), 5, True), ((2, 3, 4), 65, False), ((2, 1, 4), 5, False)]
)
def test_small_weights_and_many_rows_have_dense_gradients(
    shape: tuple[int, int, int], rows: int, factored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "MEMORY_BOUND_WEIGHTS", 12)
    weights, x = leaf(*shape), torch.randn(2, rows, 4).double()
    expected, result = gradient(lambda: stacked_linear(x, weights, torch.float64).square().sum(), weights)
    assert isinstance(result, LowRankGrad) == factored
    torch.testing.assert_close(result.dense(torch.float64) if isinstance(result, LowRankGrad) else result, expected)


def test_without_capturing_gradients_are_dense() -> None:
    weights, x = leaf(2, 3, 4), torch.randn(2, 5, 4).double()
    assert lowrank_grad.capture_for(weights, x) is None
    assert (
        GradientRule().gradients(stacked_linear(x, weights, torch.float64).sum(), [weights])[0].shape == weights.shape
    )
