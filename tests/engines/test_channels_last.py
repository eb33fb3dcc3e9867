"""Channels innermost on a CPU: other memory, the same numbers."""

import copy

import pytest
import torch
from torch import nn

from unskew.engines.channels_last import ChannelsLastFlatten, replace_flatten, to_channels_last
from unskew.models.model import Model
from unskew.models.seeded_dropout import SeededDropout, innermost

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
    for each in (net, replace_flatten(copy.deepcopy(net))):
        h = each[0](x)
        h.register_hook(found.append)
        each[1:](h).square().sum().backward()
    assert type(replace_flatten(net)[2]) is ChannelsLastFlatten
    assert [innermost(g) for g in found] == [False, True]
    torch.testing.assert_close(*found)


def test_a_derivative_of_a_derivative_goes_through() -> None:
    net = replace_flatten(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 1)).double())
    x = torch.rand(2, 2, 6, 6, dtype=torch.float64).contiguous(memory_format=ACROSS).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: net(x).pow(3), x)
    torch.func.grad(lambda x: net(x).sum())(x)  # where tensors are wrapped, as it was


def test_rows_of_a_net_that_convolves_are_laid_out() -> None:
    x = torch.rand(4, 3, 5, 5)
    nets = [nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), nn.Sequential(nn.Flatten(), nn.Linear(75, 2))]
    assert [innermost(to_channels_last(x, Model(net))) for net in nets] == [True, False]


def test_a_flatten_anywhere_is_replaced_and_keeps_its_dimensions() -> None:
    """Also one that a net uses twice; a layer derived from it stays."""

    class Own(nn.Flatten):
        pass

    twice = nn.Flatten(2, 3)
    net = replace_flatten(nn.Sequential(nn.Sequential(twice, nn.ReLU()), twice, Own(), nn.Linear(4, 2)))
    inner, outer = net[0][0], net[1]
    assert type(inner) is type(outer) is ChannelsLastFlatten
    assert (inner.start_dim, inner.end_dim) == (2, 3)
    assert (type(net[2]), type(net[3])) == (Own, nn.Linear)
