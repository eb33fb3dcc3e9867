"""Channels innermost on a CPU: other memory, the same numbers."""

import copy

import pytest
import torch
from torch import nn

from unskew.engines.channels_last import Flatten, to_channels_last
from unskew.engines.loop.loop_engine import for_cpu
from unskew.models.layers import SeededDropout, innermost
from unskew.models.model import Model

ACROSS = torch.channels_last


def dropped(h: torch.Tensor, p: float = 0.4) -> torch.Tensor:
    layer = SeededDropout(p).train()
    layer.seed = torch.tensor(12345)
    return layer(h)


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (2, 3, 2**10, 2**9)])
def test_dropout_drops_the_same_numbers_in_either_layout_and_keeps_it(shape: tuple[int, ...]) -> None:
    """Also where there are too many to remember."""
    x = torch.rand(shape) + 0.1
    plain, across = dropped(x), dropped(x.contiguous(memory_format=ACROSS))
    assert torch.equal(plain, across)
    assert (innermost(plain), innermost(across)) == (False, True)
    assert 0.5 < float((plain > 0).double().mean()) < 0.7
    assert torch.equal(plain[plain > 0], (x / 0.6)[plain > 0])


def test_what_a_cpu_remembers_is_not_changed_by_use() -> None:
    x = torch.rand(3, 4, 5, 6)
    assert torch.equal(dropped(x), dropped(x))
    assert not torch.equal(dropped(x), dropped(x.flip(0)).flip(0))  # positions count, not numbers


def test_gradients_come_back_as_the_numbers_lie() -> None:
    x = torch.rand(2, 8, 6, 6).contiguous(memory_format=ACROSS).requires_grad_()
    net = nn.Sequential(nn.MaxPool2d(2), SeededDropout(0.5), nn.Flatten(), nn.Linear(72, 3))
    found: list[torch.Tensor] = []
    for each in (net, for_cpu(copy.deepcopy(net))):
        h = each[0](x)
        h.register_hook(found.append)
        each[1:](h).square().sum().backward()
    assert type(for_cpu(net)[2]) is Flatten
    assert [innermost(g) for g in found] == [False, True]
    torch.testing.assert_close(*found)


def test_a_derivative_of_a_derivative_goes_through() -> None:
    net = for_cpu(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 1)).double())
    x = torch.rand(2, 2, 6, 6, dtype=torch.float64).contiguous(memory_format=ACROSS).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: net(x).pow(3), x)
    torch.func.grad(lambda x: net(x).sum())(x)  # where tensors are wrapped, as it was


def test_rows_of_a_net_that_convolves_are_laid_out() -> None:
    x = torch.rand(4, 3, 5, 5)
    nets = [nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), nn.Sequential(nn.Flatten(), nn.Linear(75, 2))]
    assert [innermost(to_channels_last(x, Model(net))) for net in nets] == [True, False]
