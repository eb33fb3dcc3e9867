"""Layers whose randomness comes from the plan."""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

SMALL = 2**20  # numbers whose places a CPU remembers
LAST = 1 - 2**-32  # the largest share that leaves anything: a hash has 32 bits
STEP = 0x9E3779B1 - 2**32  # from one position's beginning to the next, as a signed number


def uniform(seed: Tensor, n: int) -> Tensor:
    """n numbers in [0, 1) as a pure function of `seed` [] int64, the same in every engine and on every device."""
    return (_bits(seed, _begun(torch.Size((n,)), seed.device, False)).long() & 0xFFFFFFFF).double() / 2**32


def kept(seed: Tensor, n: int, p: float) -> Tensor:
    """Which of n numbers stay: those whose `uniform` is at least p."""
    return _stays(seed, _begun(torch.Size((n,)), seed.device, False), p).bool()


def innermost(h: Tensor) -> bool:
    """Whether an image batch has its channels innermost, as a CPU likes them (engines/channels_last.py)."""
    plain = h.ndim == 4 and h.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(h)
    return plain and h.is_contiguous(memory_format=torch.channels_last) and not h.is_contiguous()


def _stays(seed: Tensor, begun: Tensor, p: float) -> Tensor:
    """1 for each number that stays and 0 for the others, compared as integers."""
    # Bits are read as signed: turning the highest one puts them in the order that they have without a sign. A
    # comparison takes five times as long as what is done here, because its outcomes are bytes.
    below = math.ceil(p * 2**32) - 2**31 - 1
    return _bits(seed, begun).bitwise_xor_(-(2**31)).clamp(below, below + 1).sub_(below)


def _bits(seed: Tensor, begun: Tensor) -> Tensor:
    """A 32-bit hash of (seed, position); int32 wraps around, and takes a third of the time of int64 with masks."""
    h = begun + seed.to(torch.int32)
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        h = _mixed(h, shift).mul_(factor)
    return _mixed(h, 15)


def _mixed(h: Tensor, by: int) -> Tensor:
    """h xor h shifted to the right with zeros coming in, where torch repeats the sign."""
    return h.bitwise_xor_((h >> by).bitwise_and_(2 ** (32 - by) - 1))


def _begun(shape: torch.Size, device: torch.device, across: bool) -> Tensor:
    """What the hash of every position begins with; `across`: in memory with channels innermost."""
    if device.type == "cpu" and shape.numel() <= SMALL:
        return torch.from_numpy(_remembered(shape, across))
    found = torch.arange(shape.numel(), dtype=torch.int32, device=device).mul_(STEP).view(shape)
    return found.contiguous(memory_format=torch.channels_last) if across else found


@lru_cache(maxsize=8)  # a net has few dropout layers, and a run one size of batches
def _remembered(shape: torch.Size, across: bool) -> np.ndarray:
    """The same in NumPy: a tensor that is made inside a transformation of PyTorch's may be of no use after it."""
    found = (np.arange(shape.numel(), dtype=np.int32) * np.int32(STEP)).reshape(shape)
    return np.ascontiguousarray(found.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if across else found


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
        if self.p > LAST:
            return h * 0
        shape = torch.Size((*h.shape[:2], *(1,) * (h.ndim - 2))) if self.channels else h.shape
        keep = _stays(self.seed, _begun(shape, h.device, not self.channels and innermost(h)), self.p)
        # A product in the layout of `h`: a choice by a mask took three times as long, and had another layout.
        return h / (1 - self.p) * keep.to(h.dtype)


def replace_dropout(module: nn.Sequential) -> nn.Sequential:
    """The same network with every dropout layer drawn from the plan."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # named_children would skip a layer that is used twice
            if isinstance(child, nn.modules.dropout._DropoutNd):
                whole_channels = isinstance(child, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))
                setattr(parent, name, SeededDropout(child.p, whole_channels))
    return module
