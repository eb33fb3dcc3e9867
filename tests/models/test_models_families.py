"""Properties of the residual, sound, motion and attacked networks, and every family stacked over clients."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

from unskew import models
from unskew.base.errors import UserError
from unskew.base.tree import State
from unskew.models.model import Model
from unskew.models.resnet import BasicBlock


def shapes_at_cuts(model: Model, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shape of one row after every block but the last."""
    h, shapes = torch.zeros(1, *shape), []
    for i in range(model.feature):
        h = model.run(model.initial, h, i, i + 1)
        shapes.append(tuple(h.shape[1:]))
    return shapes


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("audionet", (2, 64, 344), [(8, 32, 172), (16, 16, 86), (32, 8, 43), (64, 4, 22), (64,)]),
        ("harnet", (1, 128, 3), [(64, 43, 5), (128, 20, 7), (256, 9, 9), (256, 3, 11), (8448,)]),
        ("lenet", (3, 32, 32), [(12, 16, 16), (12, 8, 8), (12, 8, 8), (768,)]),
        ("lenet", (1, 30, 17), [(12, 15, 9), (12, 8, 5), (12, 8, 5), (480,)]),
        ("resnet8", (3, 32, 32), [(16, 32, 32), (16, 32, 32), (32, 16, 16), (64, 8, 8), (64,)]),
    ],
)
def test_blocks_have_the_expected_shapes(name: str, shape: tuple[int, ...], expected: list[tuple[int, ...]]) -> None:
    assert shapes_at_cuts(models.build(name, shape, 6, seed=0), shape) == expected


@pytest.mark.parametrize(("name", "side"), [("resnet18", 8), ("resnet18-cifar", 32)])
def test_stem_decides_the_size_of_the_map(name: str, side: int) -> None:
    """7x7 of stride 2 and max-pool reduce 32 to 8; the stem for small images keeps 32."""
    expected = [(64, side, side)] * 3 + [
        (c, side // d, side // d) for c, d in ((128, 2), (256, 4), (512, 8)) for _ in "12"
    ]
    assert shapes_at_cuts(models.build(name, (3, 32, 32), 10, seed=0), (3, 32, 32)) == [*expected, (512,)]


def test_basic_block_adds_the_shortcut_before_relu() -> None:
    """With the last BatchNorm scaled to zero only the shortcut remains."""
    block = BasicBlock(4, 4, 1, track=True).eval()
    nn.init.zeros_(block.body[-1].weight)
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x.relu())


def test_batch_statistics_have_no_buffers_and_are_used_in_evaluation() -> None:
    """Scaling the input changes nothing after the first BatchNorm, but it does with running statistics."""
    model = models.build("resnet8-batchstats", (3, 8, 8), 10, seed=0)
    assert model.buffers == ()
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model.run(model.initial, 9 * x), model.run(model.initial, x), rtol=1e-3, atol=1e-3)
    plain = models.build("resnet8", (3, 8, 8), 10, seed=0)
    assert not torch.allclose(plain.run(plain.initial, 9 * x), plain.run(plain.initial, x), rtol=1e-3, atol=1e-3)
    assert all(torch.equal(plain.initial[key], model.initial[key]) for key in model.parameters)


def test_initial_weights_of_audionet_are_kaiming_normal() -> None:
    """Kaiming-normal with slope 0.1: std = sqrt(2 / (1.01 * fan in)), within 2 % for the 18,432 weights of block 4."""
    state = models.build("audionet", (2, 64, 344), 10, seed=0).initial
    assert float(state["3.0.weight"].std()) == pytest.approx(math.sqrt(2 / (1.01 * 32 * 9)), rel=0.02)
    assert all(state[f"{i}.0.bias"].abs().max() == 0 for i in range(4))


def test_audionet_normalises_after_relu() -> None:
    model = models.build("audionet", (2, 16, 16), 10, seed=0)
    assert [type(layer) for layer in model._train[0]] == [nn.Conv2d, nn.ReLU, nn.BatchNorm2d]


def test_initial_weights_of_lenet_are_uniform() -> None:
    """Every tensor is uniform in (-0.5, 0.5), with standard deviation sqrt(1/12)."""
    state = models.build("lenet", (3, 32, 32), 100, seed=0).initial
    assert all(t.abs().max() <= 0.5 for t in state.values())
    everything = torch.cat([t.flatten() for t in state.values()])
    assert float(everything.std()) == pytest.approx(math.sqrt(1 / 12), rel=0.01)
    assert all(t.abs().max() > 0.25 for t in state.values())


def test_lenet_has_second_derivatives() -> None:
    """DLG needs a nonzero derivative of the gradient with respect to the image."""
    model = models.build("lenet", (1, 8, 8), 3, seed=0, dtype=torch.float64)
    x = torch.rand(1, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    state = {key: t.clone().requires_grad_() for key, t in model.initial.items()}
    first = torch.autograd.grad(model.run(state, x).logsumexp(1).sum(), [state["0.0.weight"]], create_graph=True)[0]
    assert torch.autograd.grad(first.square().sum(), x)[0].abs().max() > 0


def test_a_window_too_short_for_harnet_is_refused() -> None:
    with pytest.raises(UserError, match=r"harnet does not fit rows of shape \(1, 12, 3\): the window is too short"):
        models.build("harnet", (1, 12, 3), 6, seed=0)


def gradient_and_buffers(model: Model, state: State, x: Tensor) -> tuple[State, State]:
    """Gradient of a loss in train mode, and the buffers after it."""

    def loss(parameters: State) -> tuple[Tensor, State]:
        full = {**{key: state[key].clone() for key in model.buffers}, **parameters}
        h = x
        for i in range(model.depth):
            h = model.block(full, h, i, train=True)
        return h.square().mean(), {key: full[key] for key in model.buffers}

    return grad(loss, has_aux=True)({key: state[key] for key in model.parameters})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet8", (3, 8, 8)),
        ("resnet8-batchstats", (3, 8, 8)),
        ("resnet18", (3, 16, 16)),
        ("audionet", (2, 32, 32)),
        ("harnet", (1, 64, 3)),
        ("lenet", (1, 8, 8)),
    ],
)
def test_two_clients_stacked_equal_the_loop(name: str, shape: tuple[int, ...]) -> None:
    """Gradients and running statistics in float64; each client has its own weights and rows."""
    model, other = (models.build(name, shape, 5, seed, torch.float64) for seed in (1, 2))
    clients = [model.initial, other.initial]
    x = torch.randn(2, 4, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    stacked = {key: torch.stack([c[key] for c in clients]) for key in model.initial}
    mapped = vmap(lambda state, rows: gradient_and_buffers(model, state, rows))(stacked, x)
    loop = [gradient_and_buffers(model, state, rows) for state, rows in zip(clients, x)]
    for part in (0, 1):
        expected = {key: torch.stack([result[part][key] for result in loop]) for key in loop[0][part]}
        torch.testing.assert_close(mapped[part], expected, rtol=1e-8, atol=1e-10)
    assert all((mapped[1][key] == 1).all() for key in model.buffers if key.endswith("num_batches_tracked"))
