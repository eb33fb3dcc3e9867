"""Layers whose randomness comes from the plan."""

import torch
from torch import Tensor, nn


def uniform(seed: Tensor, n: int) -> Tensor:
    """n numbers in [0, 1) as a pure function of `seed` [] int64, the same in every engine and on every device.

    A 32-bit integer hash of (seed, position), written with int64 arithmetic because masks of 32 bits never overflow it.
    """
    h = (torch.arange(n, device=seed.device) * 0x9E3779B1 + seed) & 0xFFFFFFFF
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        h = ((h ^ (h >> shift)) * factor) & 0xFFFFFFFF
    return (h ^ (h >> 15)).double() / 2**32


class SeededDropout(nn.Module):
    """Dropout whose mask is a function of the buffer `seed`, so that a replayed round drops the same units."""

    seed: Tensor

    def __init__(self, p: float, channels: bool = False) -> None:
        super().__init__()
        self.p, self.channels = p, channels
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        shape = torch.Size((*h.shape[:2], *(1,) * (h.ndim - 2))) if self.channels else h.shape
        keep = (uniform(self.seed, shape.numel()) >= self.p).reshape(shape)
        return h * keep.to(h.dtype) / (1 - self.p)


def replace_dropout(module: nn.Sequential) -> nn.Sequential:
    """The same network with every dropout layer drawn from the plan."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # named_children would skip a layer that is used twice
            if isinstance(child, nn.modules.dropout._DropoutNd):
                whole_channels = isinstance(child, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))
                setattr(parent, name, SeededDropout(child.p, whole_channels))
    return module
