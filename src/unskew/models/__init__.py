"""The model zoo: name -> function of (shape of a row, number of classes)."""

from collections.abc import Callable

import torch
from torch import nn

from unskew.errors import UserError, nearest
from unskew.models.cnn import cnn, cnn5x5, mlp
from unskew.models.mobilenet import mobilenet_v2
from unskew.models.model import Model

ZOO: dict[str, Callable[[tuple[int, ...], int], nn.Sequential]] = {
    "cnn": cnn,
    "cnn5x5": cnn5x5,
    "mlp": mlp,
    "mobilenet_v2": mobilenet_v2,
}


def build(name: str, shape: tuple[int, ...], classes: int, seed: int, dtype: torch.dtype = torch.float32) -> Model:
    """A zoo model with weights that depend on `seed` alone; the caller's random state is untouched."""
    check_name(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return Model(ZOO[name](shape, classes), name, dtype)
        except (ValueError, RuntimeError, ZeroDivisionError) as error:
            raise UserError(f"model {name} does not fit rows of shape {shape}: {error}") from error


def check_name(name: str) -> None:
    """Refuse a name that the zoo does not have."""
    if name not in ZOO:
        raise UserError(f"model.name: expected one of {', '.join(ZOO)}, found {name!r}{nearest(name, ZOO)}")


__all__ = ["ZOO", "Model", "build", "check_name"]
