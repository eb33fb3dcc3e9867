"""Layers that follow one another in one pass: a ReLU, and a pooling, go into the layer before them.

Alone each of them reads and writes all activations again, which is most of a small step's time on a GPU: with
BatchNorm's ReLU fused too, these passes fell from 32 to 14 ms of a round of `lmd-shards-10` on an H200, the round from
116 to 91.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from torch import nn

from unskew.engines.stacked.stacked_layers import BatchNorm2d, Conv2d, MaxPool2d
from unskew.models.seeded_dropout import SeededDropout

Place = tuple[nn.Module, str, nn.Module]  # a layer's parent, its name there, and the layer


def fuse(blocks: nn.Sequential) -> nn.Sequential:
    """The same blocks, with an identity in the place of what the layer before it does; blocks stay apart for cuts."""
    uses = Counter(id(layer) for _, layer in blocks.named_modules(remove_duplicate=False))
    for block in blocks:
        for sequence in _sequences(block):
            last: nn.Module | None = None
            for parent, name, layer in _places(sequence):
                if last is not None and uses[id(last)] == 1 and not _watched(last, layer) and _takes(last, layer):
                    setattr(parent, name, nn.Identity())
                else:
                    last = layer
    _mark_flat(blocks)
    return blocks


def _mark_flat(blocks: nn.Sequential) -> None:
    """Tell convolutions whose rows are made flat after them: else all are copied then, and their gradients again."""
    passed = (nn.Identity, nn.Dropout, SeededDropout)  # each number for itself
    layers = [layer for _, _, layer in _places(blocks) if not isinstance(layer, passed)]
    for layer, after in pairwise(layers):
        if isinstance(layer, Conv2d) and type(after) is nn.Flatten:
            layer.flat = True


def _takes(last: nn.Module, layer: nn.Module) -> bool:
    """Let the layer before do this one's work, if it can."""
    if type(layer) is nn.ReLU and isinstance(last, Conv2d | BatchNorm2d) and not last.relu:
        last.relu = True
        return True
    if isinstance(layer, MaxPool2d) and isinstance(last, Conv2d) and last.relu and last.pool == 1:
        last.pool = int(layer.kernel_size)  # type: ignore[arg-type]  # a number, or the layer would not be of this class
        return True
    return False


def _watched(*layers: nn.Module) -> bool:
    """Whether hooks look at what goes into a layer or comes out of it."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return any(getattr(layer, kind) for layer in layers for kind in kinds)


def _sequences(module: nn.Module) -> Iterator[nn.Sequential]:
    """The outermost sequences: within them, and the sequences inside, nothing looks between two layers.

    A module of one's own may call the layers of a sequence one by one, so only those that say they do not are entered.
    """
    if type(module) is nn.Sequential:
        yield module
        for _, _, layer in _places(module):
            yield from _sequences(layer)
    elif getattr(module, "calls_whole", False):
        for child in module.children():
            yield from _sequences(child)


def _places(sequence: nn.Sequential) -> Iterator[Place]:
    for name, layer in list(sequence._modules.items()):
        if type(layer) is nn.Sequential:
            yield from _places(layer)
        elif layer is not None:
            yield sequence, name, layer
