"""The model zoo: name -> function of (shape of a row, number of classes); `timm:NAME` reaches the timm library."""

from collections.abc import Callable

import torch
from torch import nn

from unskew.base.errors import UserError, nearest
from unskew.models import timm_models
from unskew.models.audio_and_motion import audionet, harnet
from unskew.models.cnn import cnn, cnn5x5, mlp
from unskew.models.lenet import lenet
from unskew.models.mobilenet import mobilenet_v2
from unskew.models.model import Model
from unskew.models.norms import BatchNormPolicy
from unskew.models.resnet import resnet8, resnet8_batchstats, resnet18, resnet18_cifar

ZOO: dict[str, Callable[[tuple[int, ...], int], nn.Sequential]] = {
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


def build(
    name: str,
    shape: tuple[int, ...],
    classes: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    batchnorm: BatchNormPolicy = "average",
    half: bool = False,
) -> Model:
    """A zoo model with weights that depend on `seed` alone; the caller's random state is untouched."""
    return Model(blocks(name, shape, classes, seed), name, dtype, batchnorm, half)


def blocks(name: str, shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Sequential:
    """The same as ordinary layers."""
    check_name(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return ZOO[name](shape, classes) if name in ZOO else timm_models.build(name, shape, classes)
        except (ValueError, RuntimeError, ZeroDivisionError, AssertionError) as error:
            if len(shape) != 3:
                raise UserError(
                    f"model {name}: expected images [channels, height, width], found rows of shape {list(shape)}; "
                    "model=mlp takes rows of any shape"
                ) from error
            raise UserError(f"model {name} does not fit rows of shape {shape}: {error}") from error


def check_name(name: str) -> None:
    """Refuse a name that neither the zoo nor timm has."""
    if name.startswith(timm_models.PREFIX):
        timm_models.check(name)
    elif name not in ZOO:
        known = f"{', '.join(ZOO)}, {timm_models.PREFIX}NAME"
        raise UserError(f"model.name: expected one of {known}, found {name!r}{nearest(name, ZOO)}")


__all__ = ["ZOO", "Model", "blocks", "build", "check_name"]
