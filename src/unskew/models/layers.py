"""Layers whose randomness comes from the plan."""

import math

import torch
from torch import Tensor, nn


def uniform(seed: Tensor, n: int) -> Tensor:
    """n numbers in [0, 1) as a pure function of `seed` [] int64, the same in every engine and on every device."""
    return (_bits(seed, n).long() & 0xFFFFFFFF).double() / 2**32


def kept(seed: Tensor, n: int, p: float) -> Tensor:
    """Which of n numbers stay: those whose `uniform` is at least p, compared as integers."""
    # Bits are read as signed: turning the highest one puts them in the order that they have without a sign.
    return (_bits(seed, n) ^ -(2**31)) >= math.ceil(p * 2**32) - 2**31


def _bits(seed: Tensor, n: int) -> Tensor:
    """A 32-bit hash of (seed, position); int32 wraps around, and takes a third of the time of int64 with masks."""
    h = torch.arange(n, dtype=torch.int32, device=seed.device) * _signed(0x9E3779B1) + seed.to(torch.int32)
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        h = _mixed(h, shift).mul_(factor)
    return _mixed(h, 15)


def _mixed(h: Tensor, by: int) -> Tensor:
    """h xor h shifted to the right with zeros coming in, where torch repeats the sign."""
    return (h >> by).bitwise_and_(2 ** (32 - by) - 1).bitwise_xor_(h)


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word


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
        keep = kept(self.seed, shape.numel(), self.p).reshape(shape)
        return torch.where(keep, h / (1 - self.p), 0.0)


def replace_dropout(module: nn.Sequential) -> nn.Sequential:
    """The same network with every dropout layer drawn from the plan."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # named_children would skip a layer that is used twice
            if isinstance(child, nn.modules.dropout._DropoutNd):
                whole_channels = isinstance(child, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))
                setattr(parent, name, SeededDropout(child.p, whole_channels))
    return module
