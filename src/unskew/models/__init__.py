"""The model zoo: name -> function of (shape of a row, number of classes); `timm:NAME` loads from the timm library."""

from collections.abc import Callable

import torch
from torch import nn

from unskew.base.errors import UserError, expected_one_of
from unskew.base.plugins import load_plugins
from unskew.models import timm_models
from unskew.models.audio_and_motion import audionet, harnet
from unskew.models.cnn import cnn, cnn5x5, mlp
from unskew.models.lenet import lenet
from unskew.models.mobilenet import mobilenet_v2
from unskew.models.model import Model
from unskew.models.norms import BatchNormPolicy
from unskew.models.resnet import resnet8, resnet8_batchstats, resnet18, resnet18_cifar

Builder = Callable[[tuple[int, ...], int], nn.Sequential]

ZOO: dict[str, Builder] = {
    "cnn": cnn,
    "cnn5x5": cnn5x5,
    "mlp": mlp,
    "mobilenet_v2": mobilenet_v2,
    "resnet8": resnet8,
    "resnet8-batchstats": resnet8_batchstats,
    "resnet18": resnet18,
    "resnet18-cifar": resnet18_cifar,
    "audionet": audionet,
    "harnet": harnet,
    "lenet": lenet,
}


def model(name: str) -> Callable[[Builder], Builder]:
    """Register a function of a row's shape and the number of classes under a name that recipes can use."""

    def register(build: Builder) -> Builder:
        ZOO[name] = build
        return build

    return register


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    batchnorm: BatchNormPolicy = "average",
    bf16: bool = False,
) -> Model:
    """A zoo model whose weights depend only on `seed`; the global random state is not changed."""
    return Model(blocks(name, shape, classes, seed), name, dtype, batchnorm, bf16)


def blocks(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Sequential:
    """The layers of a zoo model, as an ordinary `nn.Sequential`."""
    check_name(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return ZOO[name](shape, classes) if name in ZOO else timm_models.build(name, shape, classes)
        except (ValueError, RuntimeError, ZeroDivisionError, AssertionError) as error:
            if len(shape) != 3:
                raise UserError(
                    f"model {name}: expected images [channels, height, width], found rows of shape {list(shape)}; "
                    "type model=mlp, which takes rows of any shape"
                ) from error
            raise UserError(f"model {name} does not fit rows of shape {shape}: {error}; use another model") from error


def registered(name: str) -> Builder | None:
    """The function that builds a model of the zoo."""
    if name not in ZOO:
        load_plugins()
    return ZOO.get(name)


def check_name(name: str) -> None:
    """Refuse a name that is neither in the zoo nor in timm."""
    if name.startswith(timm_models.PREFIX):
        timm_models.check(name)
    elif registered(name) is None:
        raise UserError(f"model.name: {expected_one_of([*ZOO, f'{timm_models.PREFIX}NAME'], name)}")


__all__ = ["ZOO", "Model", "blocks", "build", "check_name", "model", "registered"]
