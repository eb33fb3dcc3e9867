"""The zoo: published parameter counts and shapes, cuts, roles, seeds, dropout from the plan, refused networks."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.func import vmap

from unskew import models
from unskew.base.errors import UserError
from unskew.engines.stacked.stacked_layers import use_stacked_layers
from unskew.models.model import Model
from unskew.models.seeded_dropout import SeededDropout, uniform

SHAPES = {
    "cnn": (3, 32, 32),
    "cnn5x5": (3, 32, 32),
    "mlp": (1, 8, 8),
    "mobilenet_v2": (3, 32, 32),
    "resnet8": (3, 32, 32),
    "resnet8-batchstats": (3, 16, 16),
    "resnet18": (3, 16, 16),
    "resnet18-cifar": (3, 8, 8),
    "audionet": (2, 64, 344),
    "harnet": (1, 128, 3),
    "lenet": (3, 32, 32),
}


@pytest.fixture(scope="module")
def zoo() -> dict[str, Model]:
    """Every model once, for ten classes."""
    assert SHAPES.keys() == models.ZOO.keys()
    return {name: models.build(name, shape, 10, seed=1) for name, shape in SHAPES.items()}


def rows(name: str) -> torch.Tensor:
    return torch.randn(2, *SHAPES[name], generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "count"),
    [
        ("cnn", (1, 28, 28), 10, 1_663_370),
        ("cnn", (3, 32, 32), 10, 2_156_490),
        ("cnn", (3, 32, 32), 100, 2_202_660),
        ("cnn5x5", (3, 32, 32), 10, 878_538),
        ("mlp", (1, 8, 8), 10, 64 * 64 + 64 + 64 * 10 + 10),
        ("mobilenet_v2", (3, 32, 32), 10, 2_296_922),
        ("resnet8", (3, 32, 32), 10, 78_042),
        ("resnet8-batchstats", (3, 32, 32), 10, 78_042),
        ("resnet18", (3, 224, 224), 1000, 11_689_512),
        ("resnet18", (3, 32, 32), 10, 11_181_642),
        ("resnet18-cifar", (3, 32, 32), 10, 11_173_962),
        ("audionet", (2, 64, 344), 10, 25_602),
        ("harnet", (1, 128, 3), 6, 691_974),
        ("lenet", (3, 32, 32), 100, 85_036),
        ("lenet", (1, 28, 28), 10, 13_426),
    ],
)
def test_models_have_the_documented_number_of_parameters(
    name: str, shape: tuple[int, ...], classes: int, count: int
) -> None:
    """For example cnn on 3x32x32: 2432 + 51264 + 4096*512 + 512 + 5130 = 2156490."""
    assert models.build(name, shape, classes, seed=0).parameter_count == count


def shapes_at_cuts(model: Model, h: torch.Tensor) -> list[tuple[int, ...]]:
    """The shape of one row after every block."""
    shapes = []
    for i in range(model.depth):
        h = model.run(model.initial, h, i, i + 1)
        shapes.append(tuple(h.shape[1:]))
    return shapes


def test_mobilenet_blocks_have_the_published_shapes(zoo: dict[str, Model]) -> None:
    """17 inverted residuals, the pooled vector of 1280 numbers, the logits."""
    stages = [(16, 32, 1), (24, 32, 2), (32, 16, 3), (64, 8, 4), (96, 8, 3), (160, 4, 3), (320, 4, 1)]
    expected = [(c, side, side) for c, side, repeats in stages for _ in range(repeats)] + [(1280,), (10,)]
    assert shapes_at_cuts(zoo["mobilenet_v2"], rows("mobilenet_v2")) == expected
    assert zoo["mobilenet_v2"].feature == 18


# Without audionet, whose BatchNorm comes after ReLU.
WIDTHS = {
    "cnn": 512,
    "cnn5x5": 512,
    "mlp": 64,
    "mobilenet_v2": 1280,
    "resnet8": 64,
    "resnet8-batchstats": 64,
    "resnet18": 512,
    "resnet18-cifar": 512,
    "harnet": 8448,
    "lenet": 768,
}


@pytest.mark.parametrize(("name", "width"), WIDTHS.items())
def test_representation_is_the_classifiers_input_and_not_negative(zoo: dict[str, Model], name: str, width: int) -> None:
    model = zoo[name]
    z = model.run(model.initial, rows(name), 0, model.feature)
    assert z.shape == (2, width)
    assert z.min() >= 0
    last = f"{model.feature}."
    logits = z @ model.initial[f"{last}weight"].T + model.initial[f"{last}bias"]
    torch.testing.assert_close(model.run(model.initial, rows(name)), logits)


@pytest.mark.parametrize("name", SHAPES)
def test_running_from_any_cut_gives_the_same_logits(zoo: dict[str, Model], name: str) -> None:
    model, x = zoo[name], rows(name)
    logits = model.run(model.initial, x)
    assert logits.shape == (2, 10)
    h = x
    for cut in range(model.depth + 1):
        assert torch.equal(model.run(model.initial, h, cut), logits)
        h = model.run(model.initial, h, cut, cut + 1) if cut < model.depth else h
    assert torch.equal(h, logits)


def test_model_equals_its_module() -> None:
    """Including the running statistics after a step in train mode."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()), nn.Linear(3, 2))
    model, x = Model(net), torch.randn(6, 4)
    state = {name: t.clone() for name, t in model.initial.items()}
    h = x
    for i in range(model.depth):
        h = model.block(state, h, i, train=True)
    torch.testing.assert_close(h, net.train()(x))
    torch.testing.assert_close(state, dict(net.state_dict()))
    torch.testing.assert_close(model.run(state, x), net.eval()(x))


def test_evaluation_does_not_change_the_state() -> None:
    model = Model(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
    before = {name: t.clone() for name, t in model.initial.items()}
    model.run(model.initial, torch.randn(5, 3))
    assert all(torch.equal(before[name], t) for name, t in model.initial.items())


def test_callers_module_is_not_changed() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5), nn.Linear(3, 2)).train()
    Model(net)
    assert isinstance(net[1], nn.Dropout)
    assert net.training
    assert net[0].weight.device.type == "cpu"


def test_batchnorm_tensors_are_parameters_statistics_and_a_counter() -> None:
    model = Model(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
    assert model.roles == {
        "0.weight": "parameter",
        "0.bias": "parameter",
        "0.running_mean": "statistic",
        "0.running_var": "statistic",
        "0.num_batches_tracked": "counter",
        "1.weight": "parameter",
        "1.bias": "parameter",
    }
    assert model.parameters == ("0.weight", "0.bias", "1.weight", "1.bias")
    assert set(model.buffers) == {"0.running_mean", "0.running_var", "0.num_batches_tracked"}


def test_precision_does_not_apply_to_counters() -> None:
    model = Model(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), dtype=torch.float64)
    assert model.initial["0.num_batches_tracked"].dtype == torch.int64
    assert {t.dtype for name, t in model.initial.items() if model.roles[name] != "counter"} == {torch.float64}


@pytest.mark.parametrize("name", ["cnn", "mobilenet_v2"])
def test_seed_decides_the_weights(name: str) -> None:
    a, b, c = (models.build(name, SHAPES[name], 10, seed).initial for seed in (4, 4, 5))
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a[next(iter(a))], c[next(iter(c))])


def test_building_keeps_the_global_random_state() -> None:
    torch.manual_seed(9)
    before = torch.get_rng_state()
    models.build("mlp", (4,), 3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(UserError, match="found 'cnm'; did you mean cnn"):
        models.build("cnm", (3, 32, 32), 10, seed=0)


def test_rows_of_another_rank_are_refused() -> None:
    with pytest.raises(UserError, match=r"model cnn: expected images .* type model=mlp, which takes rows"):
        models.build("cnn", (5,), 10, seed=0)


def dropout_model(p: float = 0.3) -> Model:
    """A model with two dropout layers, one of them inside a block, and no other layer that changes a row."""
    return Model(nn.Sequential(nn.Sequential(nn.Identity(), nn.Dropout(p)), nn.Dropout(p), nn.Flatten()))


def mask(model: Model, seed: int, shape: tuple[int, ...] = (10, 1000), i: int = 0) -> torch.Tensor:
    return model.block({}, torch.ones(shape), i, train=True, seed=torch.tensor(seed))


def test_dropout_is_off_in_eval() -> None:
    x = torch.randn(3, 7)
    assert torch.equal(dropout_model().run({}, x), x)


def test_dropout_follows_the_seed() -> None:
    model = dropout_model()
    assert torch.equal(mask(model, 5), mask(model, 5))
    assert not torch.equal(mask(model, 5), mask(model, 6))


def test_dropout_layers_have_different_masks() -> None:
    model = dropout_model()
    assert not torch.equal(mask(model, 5, i=0), mask(model, 5, i=1))


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_dropout_keeps_its_share_and_the_mean(p: float) -> None:
    """100,000 units: the kept share has a standard deviation below 0.0016, five are allowed; kept units are scaled."""
    out = mask(dropout_model(p), 11, (100, 1000))
    kept = out > 0
    assert float(kept.float().mean()) == pytest.approx(1 - p, abs=0.008)
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (1 - p)))
    assert float(out.mean()) == pytest.approx(1.0, abs=0.016)


def test_dropout_masks_are_independent() -> None:
    """Both kept: (1-p)^2 = 0.49 of the units, for neighbouring positions, neighbouring seeds and two layers."""
    model = dropout_model(0.3)
    a, b, other = (mask(model, s, (100, 1000), i).flatten() > 0 for s, i in ((1, 0), (2, 0), (1, 1)))
    for left, right in ((a[1:], a[:-1]), (a, b), (a, other)):
        assert float((left & right).float().mean()) == pytest.approx(0.49, abs=0.01)


def test_uniform_numbers_fill_the_unit_interval() -> None:
    """200,000 numbers in ten bins of 20,000; the standard deviation of a bin is 134, six are allowed."""
    u = uniform(torch.tensor(3), 200_000)
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert (torch.histc(u, 10, 0, 1) - 20_000).abs().max() < 6 * 134


def test_dropout2d_drops_whole_channels() -> None:
    model = Model(nn.Sequential(nn.Dropout2d(0.5), nn.Flatten()))
    out = mask(model, 2, (6, 8, 3, 3))
    assert set(out.flatten(2).amax(2).flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(out.flatten(2).amax(2), out.flatten(2).amin(2))


@pytest.mark.parametrize("p", [1.0, 1 - 2**-34, 1 - 2**-32])
@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout2d])
def test_dropping_everything_gives_zeros(layer: type[nn.Module], p: float) -> None:
    """Dropping everything gives zeros with gradients instead of a division by zero, also with stacked layers."""
    model = Model(nn.Sequential(layer(p), nn.Flatten()))
    for each in (model, model.with_layers(use_stacked_layers)):
        x = torch.randn(4, 2, 3, 3, requires_grad=True)
        out = each.block({}, x, 0, train=True, seed=torch.tensor(7))
        out.sum().backward()
        assert not out.any()
        assert x.grad is not None
        assert not x.grad.any()


def test_dropout_does_not_cache_tensors_created_in_a_transform() -> None:
    """A tensor created inside a transform is a wrapper or has no data, and later calls would get it from the cache."""
    model, x = dropout_model(), torch.randn(3, 11)
    with FakeTensorMode():
        model.block({}, torch.zeros(3, 11), 0, train=True, seed=torch.tensor(1))
    torch.func.grad(lambda h: model.block({}, h, 0, train=True, seed=torch.tensor(1)).sum())(x)
    out = model.block({}, x, 0, train=True, seed=torch.tensor(1))
    assert type(out) is torch.Tensor
    torch.testing.assert_close(out, x * mask(model, 1, (3, 11)))


def test_dropout_under_vmap_equals_the_loop() -> None:
    model = dropout_model()
    h, seeds = torch.randn(4, 5, 20, generator=torch.Generator().manual_seed(0)), torch.tensor([3, 3, 4, 2**31 - 1])

    def both_layers(h: torch.Tensor, seed: torch.Tensor) -> torch.Tensor:
        return model.block({}, model.block({}, h, 0, train=True, seed=seed), 1, train=True, seed=seed)

    stacked = vmap(both_layers)(h, seeds)
    assert torch.equal(stacked, torch.stack([both_layers(a, s) for a, s in zip(h, seeds)]))
    ones = vmap(both_layers)(torch.ones(4, 5, 20), seeds)
    assert torch.equal(ones[0], ones[1])
    assert not torch.equal(ones[1], ones[2])


def test_dropout_seed_is_not_part_of_the_state() -> None:
    assert dropout_model().initial == {}
    assert isinstance(dropout_model()._train[1], SeededDropout)


@pytest.mark.parametrize("blocks", [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2)), nn.ModuleList([nn.Linear(2, 2)])])
def test_a_model_must_be_a_sequence_of_blocks(blocks: nn.Module) -> None:
    with pytest.raises(UserError, match=r"expected an nn.Sequential of at least 2 blocks.*nn.Sequential\(body, head\)"):
        Model(blocks)  # type: ignore[arg-type]


def test_batchnorm_without_momentum_is_refused() -> None:
    with pytest.raises(UserError, match=r"0\.1 is a BatchNorm with momentum=None"):
        Model(nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=None)), nn.Linear(3, 2)))


def test_batchnorm_without_statistics_needs_no_momentum() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3, momentum=None, track_running_stats=False), nn.Linear(3, 2))
    assert Model(net).buffers == ()


def test_dropout_inside_recurrent_layers_is_refused() -> None:
    with pytest.raises(UserError, match="dropout"):
        Model(nn.Sequential(nn.LSTM(3, 3, num_layers=2, dropout=0.5), nn.Linear(3, 2)))


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.5), nn.FeatureAlphaDropout(0.5)])
def test_alpha_dropout_is_refused(layer: nn.Module) -> None:
    """It preserves mean and variance by an affine map, so plain dropout in its place would be a different network."""
    with pytest.raises(UserError, match="AlphaDropout"):
        Model(nn.Sequential(layer, nn.Linear(3, 2)))


def test_attention_dropout_is_refused() -> None:
    """Its masks come from PyTorch's global generator and cannot be replayed."""

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)

        def forward(self, h: torch.Tensor) -> torch.Tensor:
            return self.attention(h, h, h)[0]

    with pytest.raises(UserError, match="dropout"):
        Model(nn.Sequential(Attend(), nn.Flatten()))


def test_tied_weights_across_blocks_are_refused() -> None:
    layer = nn.Linear(3, 3)
    with pytest.raises(UserError, match="into one block"):
        Model(nn.Sequential(layer, nn.ReLU(), layer))


class Pair(nn.Module):
    """Two layers, one after the other."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(h))


def layers_with_one_weight() -> Pair:
    pair = Pair(nn.Linear(3, 3), nn.Linear(3, 3))
    pair.second.weight = pair.first.weight
    return pair


def norms_with_one_mean() -> Pair:
    pair = Pair(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    pair.second.running_mean = pair.first.running_mean.fill_(0.5)
    return pair


def one_layer_twice() -> Pair:
    layer = nn.Linear(3, 3)
    return Pair(layer, layer)


@pytest.mark.parametrize("make_pair", [layers_with_one_weight, norms_with_one_mean, one_layer_twice])
def test_layers_of_a_block_may_share_a_tensor(make_pair: Callable[[], Pair]) -> None:
    """Outputs equal the module's; the state has the shared tensor once; and no skeleton holds a tensor."""
    net, x = nn.Sequential(make_pair(), nn.Linear(3, 2)).eval(), torch.randn(4, 3)
    model = Model(net)
    torch.testing.assert_close(model.run(model.initial, x), net(x))
    assert len(model.initial) == len([*net.parameters(), *net.buffers()])
    changed = {name: t + 1 if t.is_floating_point() else t for name, t in model.initial.items()}
    torch.testing.assert_close(model.run(changed, x), _load_state(net, changed)(x))
    assert {t.device.type for blocks in (model._train, model._eval) for t in blocks.parameters()} == {"meta"}


def _load_state(net: nn.Sequential, state: dict[str, torch.Tensor]) -> nn.Sequential:
    """Copy every tensor of the state into the network."""
    tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
    with torch.no_grad():
        for name, tensor in state.items():
            tensors[name].copy_(tensor)
    return net
