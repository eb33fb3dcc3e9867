"""Layers for a stack of clients: the same numbers and gradients as the ordinary layers of each client."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from unskew import models
from unskew.engines.stacked import stacked_layers
from unskew.engines.stacked.fuse import fuse
from unskew.models.seeded_dropout import SeededDropout

CLIENTS = 3
NETS = {
    "dense": nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    "pointwise": nn.Conv2d(3, 8, 1),
    "strided": nn.Conv2d(3, 6, 3, 2, 1, bias=False),
    "depthwise": nn.Conv2d(4, 4, 3, 2, 1, groups=4),
    "normed": nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
    "odd pool": nn.MaxPool2d(3),
    "nested": nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.ReLU(), nn.Conv2d(4, 2, 3), nn.ReLU()
    ),
    "flat": nn.Sequential(nn.Flatten(), nn.Linear(243, 7), nn.ReLU(), nn.Linear(7, 3, bias=False)),
}


def each(net: nn.Module, train: bool) -> tuple[dict, torch.Tensor]:
    """States of some clients, and rows of each."""
    torch.manual_seed(0)
    net = net.double().train(train)
    state = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    wide = {
        k: (t.detach() + 0.1 * torch.rand(CLIENTS, *t.shape, dtype=t.dtype))
        if t.is_floating_point()
        else t.expand(CLIENTS).clone()
        for k, t in state.items()
    }
    channels = next((m.in_channels for m in net.modules() if isinstance(m, nn.Conv2d)), 3)
    return wide, torch.rand(CLIENTS, 5, channels, 9, 9, dtype=torch.float64)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_stacked_layers_equal_each_clients_own(name: str, train: bool) -> None:
    net = copy.deepcopy(NETS[name])
    state, x = each(net, train)
    swapped = fuse(stacked_layers.for_stack(nn.Sequential(copy.deepcopy(net))))[0]
    results = []
    for stacked in (False, True):
        mine = {k: t.clone().requires_grad_(t.is_floating_point()) for k, t in state.items()}
        # Running statistics are written in place, which a leaf that wants gradients does not allow.
        kept = {k: t.detach().clone() for k, t in mine.items() if "running" in k or "num" in k}
        rows = x.clone().requires_grad_()
        if stacked:
            out = vmap(lambda s, r: functional_call(swapped, s, (r,)))(mine | kept, rows)
        else:
            outs = []
            for i in range(CLIENTS):
                own = {k: t[i] for k, t in (mine | kept).items()}
                outs.append(functional_call(net, own, (rows[i],)))
            out = torch.stack(outs)
        wanted = [rows, *(t for k, t in mine.items() if k not in kept)]
        torch.manual_seed(1)
        grads = torch.autograd.grad((out * torch.rand(out.shape, dtype=out.dtype)).sum(), wanted)
        results.append([out, *grads, *kept.values()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_teacher_with_one_state_for_all() -> None:
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    net = fuse(stacked_layers.for_stack(nn.Sequential(body))).double()
    x = torch.rand(CLIENTS, 5, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(vmap(net)(x), torch.stack([net(rows) for rows in x]))


def test_gradients_inside_a_stack() -> None:
    """A method may differentiate within its loss: `torch.func.grad` under vmap goes through the same layers."""
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    net = fuse(stacked_layers.for_stack(nn.Sequential(body))).double()
    x = torch.rand(CLIENTS, 4, 2, 6, 6, dtype=torch.float64)
    found = vmap(torch.func.grad(lambda rows: net(rows).square().sum()))(x)
    for rows, grad in zip(x, found):
        rows = rows.clone().requires_grad_()
        torch.testing.assert_close(grad, torch.autograd.grad(net(rows).square().sum(), rows)[0])


def test_what_does_not_fit_stays_an_ordinary_layer() -> None:
    odd = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, (3, 5), stride=(1, 2)),
        nn.BatchNorm2d(4, affine=False),
        nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(2),
    )
    before = [type(layer) for layer in odd]
    assert [type(layer) for layer in stacked_layers.for_stack(odd)] == before


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2", "resnet8"])
def test_the_zoos_convolutions_are_all_known(name: str) -> None:
    net = stacked_layers.for_stack(models.ZOO[name]((3, 32, 32), 10))
    kinds = {type(layer) for layer in net.modules()}
    assert not kinds & {nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d}


def test_what_follows_a_layer_goes_into_it() -> None:
    units = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), nn.ReLU(), nn.MaxPool2d(2))
    pooled = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU())
    blocks = fuse(stacked_layers.for_stack(nn.Sequential(units, pooled, nn.Sequential(nn.Conv2d(4, 4, 1)), nn.ReLU())))
    kinds = [[type(layer).__name__ for layer in block.modules() if not list(layer.children())] for block in blocks]
    # After a normalisation pooling stays, and so does a ReLU that begins another block: a cut may look before it.
    assert kinds == [["Conv2d", "BatchNorm2d", "Identity", "MaxPool2d"], ["Conv2d", "Identity", "Identity", "ReLU"],
                     ["Conv2d"], ["ReLU"]]  # fmt: skip
    assert (units[0][1].relu, pooled[0].relu, pooled[0].pool) == (True, True, 2)


def test_a_layer_that_is_used_twice_takes_nothing_in() -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    blocks = fuse(stacked_layers.for_stack(nn.Sequential(nn.Sequential(conv, nn.ReLU(), conv), nn.Flatten())))
    assert (blocks[0][0].relu, type(blocks[0][1])) == (False, nn.ReLU)


def test_dropout_of_a_stack_is_each_clients_own() -> None:
    plain = SeededDropout(0.3).train()
    stacked = stacked_layers.for_stack(nn.Sequential(copy.deepcopy(plain)))[0]
    seeds, x = torch.tensor([5, 2**31 - 1, 77]), torch.rand(CLIENTS, 4, 3, 2, dtype=torch.float64)
    drop = vmap(lambda seed, rows: functional_call(stacked, {"seed": seed}, (rows,)))
    rows = x.clone().requires_grad_()
    for i, (seed, out) in enumerate(zip(seeds, drop(seeds, rows))):
        assert torch.equal(out, functional_call(plain, {"seed": seed}, (x[i],)))
    (grad,) = torch.autograd.grad(drop(seeds, rows).sum(), rows)
    assert torch.equal(grad > 0, drop(seeds, x) > 0)


class Looks(nn.Module):
    """Uses what lies between two layers of its sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        inner = self.body[0](h)
        return self.body[1](inner) + inner


def test_a_module_that_looks_between_layers_stays_as_it_is() -> None:
    plain = nn.Sequential(Looks(), nn.Flatten()).double()
    joined = fuse(stacked_layers.for_stack(copy.deepcopy(plain)))
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert torch.equal(plain(x), joined(x))


def test_a_layer_with_a_hook_stays_as_it_is() -> None:
    blocks = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()), nn.Flatten())
    blocks[0][1].register_forward_hook(lambda *given: None)
    assert type(fuse(stacked_layers.for_stack(blocks))[0][1]) is nn.ReLU


def test_gradients_inside_a_stack_in_half_precision() -> None:
    """What a method differentiates within its loss is computed under autocast, its gradient outside of it.

    All weights are positive: a unit that half precision switches off would change a gradient by more than rounding.
    """
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    net = fuse(stacked_layers.for_stack(nn.Sequential(body)))
    for weight in net.parameters():
        weight.data.abs_()
    x = torch.rand(CLIENTS, 4, 2, 6, 6)

    def slope(rows: torch.Tensor) -> torch.Tensor:
        def loss(r: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
                return net(r).float().square().sum()

        return torch.func.grad(loss)(rows)

    exact = vmap(torch.func.grad(lambda rows: net(rows).square().sum()))(x)
    assert (vmap(slope)(x) - exact).norm() < 0.02 * exact.norm()


def test_products_of_a_stack_lie_along_their_long_sides() -> None:
    """Activations along the outputs, the weights' gradient as the weights: what neither is copied nor unaligned."""
    linear = stacked_layers.for_stack(nn.Sequential(nn.Linear(12, 8)))[0].double()
    x = torch.rand(CLIENTS, 5, 12, dtype=torch.float64)
    weights = torch.rand(CLIENTS, 8, 12, dtype=torch.float64, requires_grad=True)
    bias = torch.rand(CLIENTS, 8, dtype=torch.float64)

    def outputs(w: torch.Tensor) -> torch.Tensor:
        return vmap(lambda w, b, r: functional_call(linear, {"weight": w, "bias": b}, (r,)))(w, bias, x)

    assert outputs(weights).is_contiguous()
    (grad,) = torch.autograd.grad(outputs(weights).square().sum(), weights)
    assert grad.is_contiguous()
    assert torch.autograd.gradgradcheck(outputs, weights)


def test_convolutions_know_that_their_rows_are_made_flat() -> None:
    """Across blocks, and through what takes each number for itself; not before a layer that wants channels first."""
    dropped = [nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), SeededDropout(0.5)), nn.Flatten()]
    for net, wanted in ((nn.Sequential(*dropped), [False, True]), (models.ZOO["cnn"]((3, 32, 32), 10), [False, True]),
                        (models.ZOO["mobilenet_v2"]((3, 32, 32), 10), [])):  # fmt: skip
        made = fuse(stacked_layers.for_stack(net))
        flags = [layer.flat for layer in made.modules() if isinstance(layer, stacked_layers.Conv2d)]
        assert flags == wanted if wanted else not any(flags)


def test_linear_layers_within_a_methods_own_map() -> None:
    """A stack of models on rows that are nobody's own: all tensors are plain, but a map is under way."""
    linear = stacked_layers.for_stack(nn.Sequential(nn.Linear(4, 2)))[0]
    weights, bias, x = torch.rand(3, 2, 4), torch.rand(3, 2), torch.rand(5, 4)

    def loss(scale: torch.Tensor) -> torch.Tensor:
        return scale * vmap(lambda w, b: functional_call(linear, {"weight": w, "bias": b}, (x,)))(weights, bias).mean()

    want = torch.stack([x @ w.T + b for w, b in zip(weights, bias)]).mean()
    torch.testing.assert_close(vmap(loss)(torch.ones(2)), want.expand(2))
