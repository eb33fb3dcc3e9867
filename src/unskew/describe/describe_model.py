"""The zoo as a table: parameters, the shape at every cut, and which rows a net takes. No numbers are computed.

Nets are built on torch's `meta` device, where tensors have a shape and no content, so that ResNet-18 costs nothing.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from unskew import models
from unskew.base.errors import UserError

Shape = tuple[int, ...]
# Rows that people have, by what they are; a net is tried on each.
ROWS: dict[str, Shape] = {
    "digits 1x8x8": (1, 8, 8),
    "MNIST 1x28x28": (1, 28, 28),
    "CIFAR 3x32x32": (3, 32, 32),
    "CelebA 3x64x64": (3, 64, 64),
    "photos 3x224x224": (3, 224, 224),
    "spectrograms 2x64x344": (2, 64, 344),
    "motion 1x128x3": (1, 128, 3),
    "vectors 561": (561,),
}
USUAL: dict[str, tuple[Shape, int]] = {
    "audionet": ((2, 64, 344), 10),
    "harnet": ((1, 128, 3), 6),
    "mlp": ((1, 8, 8), 10),
}
IMAGES: tuple[Shape, int] = ((3, 32, 32), 10)


@dataclass(frozen=True)
class BlockDescription:
    """One block: the cut after it, the shape there, and what the block holds."""

    cut: int
    shape: Shape
    parameters: int
    layers: str


@dataclass(frozen=True)
class ModelDescription:
    """A net for rows of one shape."""

    name: str
    told: str
    shape: Shape
    classes: int
    blocks: tuple[BlockDescription, ...]
    batchnorm: bool

    @property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def feature(self) -> int:
        """The cut before the classifier."""
        return len(self.blocks) - 1

    @property
    def takes(self) -> tuple[str, ...]:
        """Which of the rows that people have the net fits; found out by walking it, so only where it is shown."""
        return tuple(words for words, rows in ROWS.items() if _fits(self.name, rows)) if self.name in models.ZOO else ()


def describe(name: str, shape: Shape | None = None, classes: int | None = None) -> ModelDescription:
    """A net of the zoo, or timm:NAME, for rows of a shape; the usual rows of the net without one."""
    models.check_name(name)
    usual, number = USUAL.get(name, IMAGES)
    shape, classes = shape or usual, classes or number
    zoo = models.ZOO.get(name)
    told = (
        " ".join((zoo.__doc__ or "").split("\n\n")[0].split())
        if zoo
        else "a net of the timm library, cut at its stages"
    )
    blocks = _built(name, shape, classes)
    norm = any(isinstance(module, _BatchNorm) for module in blocks.modules())
    return ModelDescription(name, told, shape, classes, _walk(name, blocks, shape), norm)


def written(shape: Shape) -> str:
    """3x32x32."""
    return "x".join(map(str, shape))


def parse_shape(text: str) -> Shape:
    """3,32,32 or 3x32x32 as numbers."""
    words = text.replace("x", ",").split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--shape: expected positive numbers such as 3,32,32, found {text!r}")
    return tuple(int(word) for word in words)


def _built(name: str, shape: Shape, classes: int) -> nn.Sequential:
    if name not in models.ZOO:
        # timm's nets are probed with real numbers when they are cut.
        return models.timm_models.build(name, shape, classes).to("meta").eval()
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows too small for a net give it empty tensors; walking it says so
            return models.ZOO[name](shape, classes).eval()
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        raise UserError(f"model {name} does not fit rows of shape {written(shape)}: {error}") from error


def _walk(name: str, blocks: nn.Sequential, shape: Shape) -> tuple[BlockDescription, ...]:
    h, found = torch.empty(2, *shape, device="meta"), []
    for cut, block in enumerate(blocks, start=1):
        try:
            h = block(h)
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"model {name} does not fit rows of shape {written(shape)}: block {cut}: {error}"
            ) from error
        count = sum(tensor.numel() for tensor in block.parameters())
        found.append(BlockDescription(cut, tuple(h.shape[1:]), count, _layers(block)))
    return tuple(found)


def _fits(name: str, rows: Shape) -> bool:
    try:
        _walk(name, _built(name, rows, 10), rows)
    except UserError:
        return False
    return True


def _layers(block: nn.Module) -> str:
    """Names of the layers, repeated ones counted."""
    leaves = [type(module).__name__ for module in block.modules() if not list(module.children())]
    told = [f"{leaves.count(name)} {name}" if leaves.count(name) > 1 else name for name in dict.fromkeys(leaves)]
    return ", ".join(told)
