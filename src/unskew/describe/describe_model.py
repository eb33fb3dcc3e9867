"""Describe the networks of the zoo: parameters, the shape at every cut, and which input shapes a network accepts.

Networks are built on torch's `meta` device, where tensors have a shape but no data, so that even ResNet-18 is cheap.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from unskew import models
from unskew.base.errors import UserError
from unskew.describe.json_record import json_record

Shape = tuple[int, ...]
# Common input shapes; each network is tried on all of them.
COMMON_SHAPES: dict[str, Shape] = {
    "digits 1x8x8": (1, 8, 8),
    "MNIST 1x28x28": (1, 28, 28),
    "CIFAR 3x32x32": (3, 32, 32),
    "CelebA 3x64x64": (3, 64, 64),
    "photos 3x224x224": (3, 224, 224),
    "spectrograms 2x64x344": (2, 64, 344),
    "motion 1x128x3": (1, 128, 3),
    "vectors 561": (561,),
}
DEFAULT_ROWS: dict[str, tuple[Shape, int]] = {
    "audionet": ((2, 64, 344), 10),
    "harnet": ((1, 128, 3), 6),
    "mlp": ((1, 8, 8), 10),
}
DEFAULT_IMAGES: tuple[Shape, int] = ((3, 32, 32), 10)


@dataclass(frozen=True)
class BlockDescription:
    """One block: the cut after it, the shape at that cut, and the block's parameters and layers."""

    cut: int
    shape: Shape
    parameters: int
    layers: str


@dataclass(frozen=True)
class ModelDescription:
    """A network for inputs of one shape."""

    name: str
    summary: str
    shape: Shape
    classes: int
    blocks: tuple[BlockDescription, ...]
    batchnorm: bool

    def record(self) -> dict[str, Any]:
        """All fields, under the keys of `unskew models --json`."""
        return json_record(self) | {"parameters": self.parameters, "feature": self.feature, "takes": self.takes}

    @property
    def parameters(self) -> int:
        return sum(block.parameters for block in self.blocks)

    @property
    def feature(self) -> int:
        """The cut before the classifier."""
        return len(self.blocks) - 1

    @property
    def takes(self) -> tuple[str, ...]:
        """The COMMON_SHAPES that the network accepts. Slow, because each is tried: read it only to show it."""
        if self.name not in models.ZOO:
            return ()
        return tuple(words for words, shape in COMMON_SHAPES.items() if _fits(self.name, shape))


def describe(name: str, shape: Shape | None = None, classes: int | None = None) -> ModelDescription:
    """Describe a network of the zoo, or timm:NAME, for inputs of `shape`; default: the network's usual shape."""
    models.check_name(name)
    default_shape, default_classes = DEFAULT_ROWS.get(name, DEFAULT_IMAGES)
    shape, classes = shape or default_shape, classes or default_classes
    zoo = models.ZOO.get(name)
    summary = (
        " ".join((zoo.__doc__ or "").split("\n\n")[0].split())
        if zoo
        else "a network of the timm library, cut at its stages"
    )
    blocks = _build(name, shape, classes)
    norm = any(isinstance(module, _BatchNorm) for module in blocks.modules())
    return ModelDescription(name, summary, shape, classes, _describe_blocks(name, blocks, shape), norm)


def format_shape(shape: Shape) -> str:
    """A shape as text, such as 3x32x32."""
    return "x".join(map(str, shape))


def parse_shape(text: str) -> Shape:
    """Parse 3,32,32 or 3x32x32."""
    words = text.replace("x", ",").split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"--shape: expected positive numbers such as 3,32,32, found {text!r}")
    return tuple(int(word) for word in words)


def _build(name: str, shape: Shape, classes: int) -> nn.Sequential:
    if name not in models.ZOO:
        # timm's networks are cut with a forward pass on real tensors, so they cannot be built on meta.
        return models.timm_models.build(name, shape, classes).to("meta").eval()
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # too small inputs give empty tensors; the forward pass reports them
            return models.ZOO[name](shape, classes).eval()
    except (ValueError, RuntimeError, ZeroDivisionError) as error:
        raise UserError(f"model {name} does not fit rows of shape {format_shape(shape)}: {error}") from error


def _describe_blocks(name: str, blocks: nn.Sequential, shape: Shape) -> tuple[BlockDescription, ...]:
    h, described = torch.empty(2, *shape, device="meta"), []
    for cut, block in enumerate(blocks, start=1):
        try:
            h = block(h)
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"model {name} does not fit rows of shape {format_shape(shape)}: block {cut}: {error}"
            ) from error
        count = sum(tensor.numel() for tensor in block.parameters())
        described.append(BlockDescription(cut, tuple(h.shape[1:]), count, _layers(block)))
    return tuple(described)


def _fits(name: str, rows: Shape) -> bool:
    try:
        _describe_blocks(name, _build(name, rows, 10), rows)
    except UserError:
        return False
    return True


def _layers(block: nn.Module) -> str:
    """Names of the layers with their counts."""
    leaves = [type(module).__name__ for module in block.modules() if not list(module.children())]
    names = [f"{leaves.count(name)} {name}" if leaves.count(name) > 1 else name for name in dict.fromkeys(leaves)]
    return ", ".join(names)
