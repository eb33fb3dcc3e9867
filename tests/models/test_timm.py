"""timm models as blocks: equal to the network they were cut from, or refused with a message."""

import importlib
import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from unskew import models
from unskew.base.errors import UserError
from unskew.models import timm_models
from unskew.models.model import Model

X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


class Chain(nn.Module):
    """A small network with the structure of timm's: stem, stages, and a head with the classifier."""

    def __init__(self, in_chans: int = 3, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.act1 = nn.Conv2d(in_chans, 4, 3, 2, 1), nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 6, 3, 2, 1))
        self.layer2 = nn.Sequential(nn.BatchNorm2d(6), nn.Conv2d(6, 8, 3, 2, 1))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, num_classes), nn.Identity())

    def get_classifier(self) -> nn.Module:
        return self.head[2]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer2(self.layer1(self.act1(self.conv1(x)))))


class Skip(Chain):
    """A network with a second path through a stage."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer1(self.act1(self.conv1(x)))
        return self.head(self.layer2(h) + self.layer2(h.flip(-1)))


class Token(Chain):
    """A network with a parameter outside its children, like the position embedding of a vision transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1))


class Flat(nn.Module):
    """A network without stages."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.fc = nn.Flatten(), nn.Linear(3072, 10)

    def get_classifier(self) -> nn.Module:
        return self.fc

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.flatten(x))


class PathDrop(nn.Identity):
    drop_prob = 0.1


@pytest.fixture
def fake_timm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace timm by a library with one model."""
    library = ModuleType("timm")
    library.is_model = lambda name: name == "chain"  # type: ignore[attr-defined]
    library.list_models = lambda: ["chain"]  # type: ignore[attr-defined]
    library.create_model = lambda name, pretrained, **options: Chain(**options)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", library)


def test_blocks_are_stem_stages_pool_classifier() -> None:
    net = Chain()
    blocks = timm_models.cut_into_blocks(net, (3, 32, 32), "timm:chain")
    assert len(blocks) == 5
    assert blocks[1] is net.layer1
    assert blocks[-1] is net.get_classifier()
    assert torch.equal(blocks.eval()(X), net.eval()(X))


def test_a_block_does_not_change_its_input() -> None:
    """layer1 starts with an in-place ReLU, which would change the features that a client shares."""
    model = Model(timm_models.cut_into_blocks(Chain(), (3, 32, 32), "timm:chain"))
    h = -X[:, :1].expand(2, 4, 32, 32).contiguous()
    before = h.clone()
    model.run(model.initial, h, 1)
    assert torch.equal(h, before)


@pytest.mark.parametrize("training", [True, False])
def test_cutting_keeps_the_mode(training: bool) -> None:
    net = Chain().train(training)
    timm_models.cut_into_blocks(net, (3, 32, 32), "timm:chain")
    assert net.training is training


def net_with_path_drop() -> nn.Module:
    net = Chain()
    net.layer2.append(PathDrop())
    return net


def net_with_drop_rate() -> nn.Module:
    net = Chain()
    net.drop_rate = 0.2  # type: ignore[assignment]
    return net


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (Skip(), "more than a chain"),
        (Token(), "parameters outside its stages"),
        (Flat(), "it has no stages"),
        (nn.Linear(2, 2), "its classifier is not one linear layer"),
        (net_with_path_drop(), "layer2.2 drops paths at random"),
        (net_with_drop_rate(), "drops features outside its layers"),
    ],
)
def test_a_network_that_is_not_a_chain_is_refused(net: nn.Module, reason: str) -> None:
    with pytest.raises(UserError, match=f"model timm:x: expected .* found that .*{reason}.*for example, resnet18"):
        timm_models.cut_into_blocks(net, (3, 32, 32), "timm:x")


@pytest.mark.usefixtures("fake_timm")
def test_build_sets_channels_and_classes_and_depends_on_the_seed() -> None:
    a, b, c = (models.build("timm:chain", (1, 16, 16), 7, seed).initial for seed in (1, 1, 2))
    assert a["0.0.weight"].shape == (4, 1, 3, 3)
    assert a["4.weight"].shape == (7, 8)
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a["4.weight"], c["4.weight"])


@pytest.mark.usefixtures("fake_timm")
def test_unknown_name_suggests_the_closest() -> None:
    with pytest.raises(UserError, match="found 'chian'; did you mean chain"):
        models.check_name("timm:chian")


def test_missing_library_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r"pip install 'unskew\[vision\]'"):
        models.check_name("timm:resnet18")


def test_incompatible_torchvision_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> ModuleType:
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(UserError, match="expected a torchvision built for torch"):
        timm_models.load()


NAMES = ["resnet18", "mobilenetv2_100", "efficientnet_b0", "convnext_atto", "regnetx_002"]


@pytest.mark.parametrize("name", NAMES)
def test_real_models_give_the_same_logits_from_every_cut(name: str) -> None:
    """The models recommended by the error message."""
    timm = pytest.importorskip("timm", exc_type=ImportError)
    net = timm.create_model(name, in_chans=3, num_classes=10)
    model = Model(timm_models.cut_into_blocks(net, (3, 32, 32), name))
    logits, h = net.eval()(X), X
    assert model.depth >= 7
    for cut in range(model.depth):
        assert torch.equal(model.run(model.initial, h, cut), logits)
        h = model.run(model.initial, h, cut, cut + 1)


def test_a_real_model_stacked_over_two_clients_equals_the_loop() -> None:
    """In train mode and float64. Only resnet18, because depthwise convolutions are slow on a CPU."""
    timm = pytest.importorskip("timm", exc_type=ImportError)
    model = Model(
        timm_models.cut_into_blocks(timm.create_model("resnet18", num_classes=10), (3, 32, 32), "x"),
        dtype=torch.float64,
    )

    def train(state: dict[str, Tensor], h: Tensor) -> Tensor:
        state = {key: t.clone() for key, t in state.items()}
        for i in range(model.depth):
            h = model.block(state, h, i, train=True)
        return h

    rows = torch.stack([X, X.flip(-1)]).double()
    stacked = vmap(train)({key: torch.stack([t, t]) for key, t in model.initial.items()}, rows)
    torch.testing.assert_close(stacked, torch.stack([train(model.initial, r) for r in rows]))


def test_resnet18_of_the_zoo_equals_that_of_timm() -> None:
    """Same tensors in the same order and same output: both have the topology of torchvision's ResNet-18."""
    timm = pytest.importorskip("timm", exc_type=ImportError)
    net = timm.create_model("resnet18", num_classes=10).eval()
    model = models.build("resnet18", (3, 32, 32), 10, seed=0)
    state = dict(zip(model.parameters, net.parameters()))
    state |= dict(zip(model.buffers, net.buffers()))
    torch.testing.assert_close(model.run(state, X), net(X))
