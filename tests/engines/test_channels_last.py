"""Channels-last layout on a CPU: another memory order with the same numbers."""

import copy

import pytest
import torch
from torch import nn

from unskew.engines.channels_last import ChannelsLastFlatten, replace_flatten, to_channels_last
from unskew.models.model import Model
from unskew.models.seeded_dropout import SeededDropout, is_channels_last

CHANNELS_LAST = torch.channels_last


def dropout(h: torch.Tensor, p: float = 0.4) -> torch.Tensor:
    layer = SeededDropout(p).train()
    layer.seed = torch.tensor(12345)
    return layer(h)


@pytest.mark.parametrize("shape", [(4, 6, 5, 3), (2, 3, 2**10, 2**9)])
def test_dropout_has_the_same_mask_in_either_layout_and_keeps_the_layout(shape: tuple[int, ...]) -> None:
    """Also for tensors too large for the cached hash."""
    x = torch.rand(shape) + 0.1
    plain, channels_last = dropout(x), dropout(x.contiguous(memory_format=CHANNELS_LAST))
    assert torch.equal(plain, channels_last)
    assert (is_channels_last(plain), is_channels_last(channels_last)) == (False, True)
    assert 0.5 < float((plain > 0).double().mean()) < 0.7
    assert torch.equal(plain[plain > 0], (x / 0.6)[plain > 0])


def test_repeated_dropout_with_one_seed_is_the_same() -> None:
    x = torch.rand(3, 4, 5, 6)
    assert torch.equal(dropout(x), dropout(x))
    assert not torch.equal(dropout(x), dropout(x.flip(0)).flip(0))  # the mask depends on positions, not on values


def test_gradients_keep_the_channels_last_layout() -> None:
    x = torch.rand(2, 8, 6, 6).contiguous(memory_format=CHANNELS_LAST).requires_grad_()
    net = nn.Sequential(nn.MaxPool2d(2), SeededDropout(0.5), nn.Flatten(), nn.Linear(72, 3))
    gradients: list[torch.Tensor] = []
    for each in (net, replace_flatten(copy.deepcopy(net))):
        h = each[0](x)
        h.register_hook(gradients.append)
        each[1:](h).square().sum().backward()
    assert type(replace_flatten(net)[2]) is ChannelsLastFlatten
    assert [is_channels_last(g) for g in gradients] == [False, True]
    torch.testing.assert_close(*gradients)


def test_second_derivatives_work() -> None:
    net = replace_flatten(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(64, 1)).double())
    x = torch.rand(2, 2, 6, 6, dtype=torch.float64).contiguous(memory_format=CHANNELS_LAST).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: net(x).pow(3), x)
    torch.func.grad(lambda x: net(x).sum())(x)  # wrapped tensors work as before


def test_only_rows_of_convolutional_nets_become_channels_last() -> None:
    x = torch.rand(4, 3, 5, 5)
    nets = [nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten()), nn.Sequential(nn.Flatten(), nn.Linear(75, 2))]
    assert [is_channels_last(to_channels_last(x, Model(net))) for net in nets] == [True, False]


def test_every_flatten_is_replaced_and_keeps_its_dimensions() -> None:
    """Also one that a net uses twice; a subclass of nn.Flatten stays."""

    class CustomFlatten(nn.Flatten):
        pass

    twice = nn.Flatten(2, 3)
    net = replace_flatten(nn.Sequential(nn.Sequential(twice, nn.ReLU()), twice, CustomFlatten(), nn.Linear(4, 2)))
    inner, outer = net[0][0], net[1]
    assert type(inner) is type(outer) is ChannelsLastFlatten
    assert (inner.start_dim, inner.end_dim) == (2, 3)
    assert (type(net[2]), type(net[3])) == (CustomFlatten, nn.Linear)
