"""On a CPU weights that follow their gradient piece by piece end where PyTorch's SGD takes them, for every method."""

from typing import Any

import pytest
import torch
from small import trained
from torch import Tensor, nn
from torch.optim.sgd import sgd

from unskew.engines.loop import pieces
from unskew.engines.loop.loop_engine import for_cpu
from unskew.engines.loop.pieces import Linear, descend, in_pieces
from unskew.engines.stacked import kernels
from unskew.engines.stacked.lowrank_grad import Factored
from unskew.protocol.optimiser import PLAIN
from unskew.protocol.work import Work


def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All weights, and they have several pieces."""
    monkeypatch.setattr(kernels, "LARGE", 0)
    monkeypatch.setattr(pieces, "LARGE", 0)
    monkeypatch.setattr(pieces, "PIECE", 1)


large = pytest.fixture(all_are_large)


def test_every_method_trains_alike(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    want, follow, seen = trained(method, "loop"), pieces._follow, list[int]()
    all_are_large(monkeypatch)
    monkeypatch.setattr(pieces, "_follow", lambda leaf, *rest: (seen.append(leaf.numel()), follow(leaf, *rest)))
    found = trained(method, "loop")
    for name, tensor in want.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-11)
    # All of the net's weights, unless a loss is a derivative by PyTorch's transformations.
    assert len(set(seen)) == (0 if method == "fedmix-taylor" else 3)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("more", [{}, {"weight_decay": 0.1}, {"beside": True}, {"nesterov": True}])
@pytest.mark.usefixtures("large")
def test_steps_are_those_of_sgd(momentum: float, more: dict[str, Any]) -> None:
    """Three steps of weights in three pieces, the last one smaller, and of a bias, whose gradient is whole."""
    beside, decay = more.get("beside", False), more.get("weight_decay", 0.0)
    nesterov = more.get("nesterov", False) and momentum > 0
    how = {"lr": 0.1, "momentum": momentum, "weight_decay": decay, "nesterov": nesterov}
    how |= {"dampening": 0.0, "maximize": False}
    mine = [torch.randn(40, 7, dtype=torch.float64), torch.randn(40, dtype=torch.float64)]
    theirs, ours, want = [t.clone() for t in mine], [None, None] if momentum else [], [None, None] if momentum else []
    for _ in range(3):
        back, rows, flat = (torch.randn(*s, dtype=torch.float64) for s in ((5, 40), (5, 7), (40,)))
        grad = Factored(back, rows, torch.randn(40, 7, dtype=torch.float64) if beside else None)
        descend(mine, [grad, flat], ours, **how)
        sgd(theirs, [grad.whole(torch.float64), flat.clone()], want, **how)
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(ours, want)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("work", [Work(4, 0.1, clip=1.0), Work(4, 0.1, optimiser="adam")])
def test_gradients_are_whole_where_they_are_needed(work: Work) -> None:
    assert in_pieces([torch.zeros(3, 4, requires_grad=True)], work) is PLAIN


def gradients(layer: nn.Linear, rows: Tensor) -> list[Tensor | Factored]:
    leaves = list(layer.parameters())
    descent = in_pieces(leaves, Work(4, 0.1))
    with descent.watching():
        loss = layer(rows).square().sum()
    return descent.gradients(loss, leaves)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("bias", [True, False])
def test_only_a_matrix_of_few_rows_has_factors(bias: bool) -> None:
    layer = for_cpu(nn.Sequential(nn.Linear(6, 5, bias=bias)))[0]
    assert type(layer) is Linear
    for shape, factored in (((3, 6), True), ((3, 2, 6), False), ((65, 6), False)):
        rows = torch.randn(shape)
        grad, *more = gradients(layer, rows)
        want = torch.autograd.grad(nn.functional.linear(rows, *layer.parameters()).square().sum(), layer.parameters())
        assert isinstance(grad, Factored) == factored
        torch.testing.assert_close(grad.whole(torch.float32) if isinstance(grad, Factored) else grad, want[0])
        torch.testing.assert_close(more, list(want[1:]))


@pytest.mark.usefixtures("large")
def test_half_precision_and_transformations_go_pytorchs_way() -> None:
    layer, rows = for_cpu(nn.Sequential(nn.Linear(6, 5)))[0], torch.randn(3, 6)
    with torch.autocast("cpu", torch.bfloat16):
        assert isinstance(gradients(layer, rows)[0], Tensor)
    descent = in_pieces(list(layer.parameters()), Work(4, 0.1))
    with descent.watching():
        each = torch.func.vmap(torch.func.grad(lambda x: layer(x[None]).square().sum()))(rows)
    want = torch.autograd.grad(layer(given := rows.clone().requires_grad_()).square().sum(), given)[0]
    torch.testing.assert_close(each, want)


def test_small_layers_are_left_alone() -> None:
    """`pfl-cifar`'s hidden layer has 128 x 12544 weights, its last one 10 x 128."""
    assert isinstance(gradients(for_cpu(nn.Sequential(nn.Linear(12544, 128)))[0], torch.randn(10, 12544))[0], Factored)
    assert isinstance(gradients(for_cpu(nn.Sequential(nn.Linear(128, 10)))[0], torch.randn(10, 128))[0], Tensor)
