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


def random_states(net: nn.Module, train: bool) -> tuple[dict, torch.Tensor]:
    """States and rows of some clients."""
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
def test_stacked_layers_equal_the_layers_of_each_client(name: str, train: bool) -> None:
    net = copy.deepcopy(NETS[name])
    state, x = random_states(net, train)
    stacked_net = fuse(stacked_layers.use_stacked_layers(nn.Sequential(copy.deepcopy(net))))[0]
    results = []
    for stacked in (False, True):
        leaves = {k: t.clone().requires_grad_(t.is_floating_point()) for k, t in state.items()}
        # Running statistics are updated in place, which is not allowed for a leaf that requires gradients.
        buffers = {k: t.detach().clone() for k, t in leaves.items() if "running" in k or "num" in k}
        rows = x.clone().requires_grad_()
        if stacked:
            out = vmap(lambda s, r: functional_call(stacked_net, s, (r,)))(leaves | buffers, rows)
        else:
            outs = []
            for i in range(CLIENTS):
                own = {k: t[i] for k, t in (leaves | buffers).items()}
                outs.append(functional_call(net, own, (rows[i],)))
            out = torch.stack(outs)
        inputs = [rows, *(t for k, t in leaves.items() if k not in buffers)]
        torch.manual_seed(1)
        grads = torch.autograd.grad((out * torch.rand(out.shape, dtype=out.dtype)).sum(), inputs)
        results.append([out, *grads, *buffers.values()])
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_a_teacher_is_shared_by_all_clients() -> None:
    body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))
    net = fuse(stacked_layers.use_stacked_layers(nn.Sequential(body))).double()
    x = torch.rand(CLIENTS, 5, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(vmap(net)(x), torch.stack([net(rows) for rows in x]))


def test_a_loss_may_use_torch_func_grad_in_a_stack() -> None:
    """`torch.func.grad` under vmap works with the layers of a stack."""
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    net = fuse(stacked_layers.use_stacked_layers(nn.Sequential(body))).double()
    x = torch.rand(CLIENTS, 4, 2, 6, 6, dtype=torch.float64)
    gradients = vmap(torch.func.grad(lambda rows: net(rows).square().sum()))(x)
    for rows, grad in zip(x, gradients):
        rows = rows.clone().requires_grad_()
        torch.testing.assert_close(grad, torch.autograd.grad(net(rows).square().sum(), rows)[0])


def test_unsupported_layers_are_not_replaced() -> None:
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
    assert [type(layer) for layer in stacked_layers.use_stacked_layers(odd)] == before


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2", "resnet8"])
def test_all_convolutions_of_the_model_zoo_are_replaced(name: str) -> None:
    net = stacked_layers.use_stacked_layers(models.ZOO[name]((3, 32, 32), 10))
    kinds = {type(layer) for layer in net.modules()}
    assert not kinds & {nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d}


def test_relu_and_pooling_are_fused_into_the_layer_before() -> None:
    units = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), nn.ReLU(), nn.MaxPool2d(2))
    pooled = nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU())
    blocks = fuse(
        stacked_layers.use_stacked_layers(nn.Sequential(units, pooled, nn.Sequential(nn.Conv2d(4, 4, 1)), nn.ReLU()))
    )
    kinds = [[type(layer).__name__ for layer in block.modules() if not list(layer.children())] for block in blocks]
    # A pooling after a normalisation stays, and so does a ReLU that begins another block: a cut may read before it.
    assert kinds == [["Conv2d", "BatchNorm2d", "Identity", "MaxPool2d"], ["Conv2d", "Identity", "Identity", "ReLU"],
                     ["Conv2d"], ["ReLU"]]  # fmt: skip
    assert (units[0][1].relu, pooled[0].relu, pooled[0].pool) == (True, True, 2)


def test_a_layer_that_is_used_twice_is_not_fused() -> None:
    conv = nn.Conv2d(3, 3, 3, padding=1)
    blocks = fuse(stacked_layers.use_stacked_layers(nn.Sequential(nn.Sequential(conv, nn.ReLU(), conv), nn.Flatten())))
    assert (blocks[0][0].relu, type(blocks[0][1])) == (False, nn.ReLU)


def test_dropout_of_a_stack_equals_that_of_each_client() -> None:
    plain = SeededDropout(0.3).train()
    stacked = stacked_layers.use_stacked_layers(nn.Sequential(copy.deepcopy(plain)))[0]
    seeds, x = torch.tensor([5, 2**31 - 1, 77]), torch.rand(CLIENTS, 4, 3, 2, dtype=torch.float64)
    drop = vmap(lambda seed, rows: functional_call(stacked, {"seed": seed}, (rows,)))
    rows = x.clone().requires_grad_()
    for i, (seed, out) in enumerate(zip(seeds, drop(seeds, rows))):
        assert torch.equal(out, functional_call(plain, {"seed": seed}, (x[i],)))
    (grad,) = torch.autograd.grad(drop(seeds, rows).sum(), rows)
    assert torch.equal(grad > 0, drop(seeds, x) > 0)


class ReadsBetweenLayers(nn.Module):
    """Uses the activations between two layers of its sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.ReLU())

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        inner = self.body[0](h)
        return self.body[1](inner) + inner


def test_a_module_that_reads_between_layers_is_not_fused() -> None:
    plain = nn.Sequential(ReadsBetweenLayers(), nn.Flatten()).double()
    fused = fuse(stacked_layers.use_stacked_layers(copy.deepcopy(plain)))
    x = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert torch.equal(plain(x), fused(x))


def test_a_layer_with_a_hook_is_not_fused() -> None:
    blocks = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 3), nn.ReLU()), nn.Flatten())
    blocks[0][1].register_forward_hook(lambda *given: None)
    assert type(fuse(stacked_layers.use_stacked_layers(blocks))[0][1]) is nn.ReLU


def test_a_loss_may_use_torch_func_grad_in_half_precision() -> None:
    """The function that a method differentiates runs under autocast, its gradient outside of it.

    All weights are positive: a ReLU that half precision switches off would change a gradient by more than rounding.
    """
    body = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2))
    net = fuse(stacked_layers.use_stacked_layers(nn.Sequential(body)))
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


def test_linear_outputs_and_weight_gradients_are_contiguous() -> None:
    """Activations are contiguous along the outputs, gradients like the weights: no copies, aligned products."""
    linear = stacked_layers.use_stacked_layers(nn.Sequential(nn.Linear(12, 8)))[0].double()
    x = torch.rand(CLIENTS, 5, 12, dtype=torch.float64)
    weights = torch.rand(CLIENTS, 8, 12, dtype=torch.float64, requires_grad=True)
    bias = torch.rand(CLIENTS, 8, dtype=torch.float64)

    def outputs(w: torch.Tensor) -> torch.Tensor:
        return vmap(lambda w, b, r: functional_call(linear, {"weight": w, "bias": b}, (r,)))(w, bias, x)

    assert outputs(weights).is_contiguous()
    (grad,) = torch.autograd.grad(outputs(weights).square().sum(), weights)
    assert grad.is_contiguous()
    assert torch.autograd.gradgradcheck(outputs, weights)


def test_convolutions_before_a_flatten_are_marked() -> None:
    """Across blocks and elementwise layers, but not before a layer that reads channels first."""
    with_dropout = [nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), SeededDropout(0.5)), nn.Flatten()]
    cnn, mobilenet = (models.ZOO[name]((3, 32, 32), 10) for name in ("cnn", "mobilenet_v2"))
    for net, expected in ((nn.Sequential(*with_dropout), [False, True]), (cnn, [False, True]), (mobilenet, [])):
        fused = fuse(stacked_layers.use_stacked_layers(net))
        flags = [layer.flat for layer in fused.modules() if isinstance(layer, stacked_layers.Conv2d)]
        assert flags == expected if expected else not any(flags)


def test_linear_layers_work_inside_a_methods_own_vmap() -> None:
    """A stack of models on shared rows: no tensor is wrapped, but a vmap is active."""
    linear = stacked_layers.use_stacked_layers(nn.Sequential(nn.Linear(4, 2)))[0]
    weights, bias, x = torch.rand(3, 2, 4), torch.rand(3, 2), torch.rand(5, 4)

    def loss(scale: torch.Tensor) -> torch.Tensor:
        return scale * vmap(lambda w, b: functional_call(linear, {"weight": w, "bias": b}, (x,)))(weights, bias).mean()

    expected = torch.stack([x @ w.T + b for w, b in zip(weights, bias)]).mean()
    torch.testing.assert_close(vmap(loss)(torch.ones(2)), expected.expand(2))
