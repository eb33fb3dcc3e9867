"""Dropout whose randomness comes from the client's plan."""

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

CACHED_NUMEL = 2**20  # up to this size, a CPU caches the offsets of the positions
MAX_DROP_RATE = 1 - 2**-32  # a larger rate drops everything, because the hash has 32 bits
POSITION_STRIDE = 0x9E3779B1 - 2**32  # difference of the offsets of neighbouring positions, as a signed number


def uniform(seed: Tensor, n: int) -> Tensor:
    """n numbers in [0, 1) as a pure function of `seed` [] int64, the same in every engine and on every device."""
    return (_hash(seed, _offsets(torch.Size((n,)), seed.device, False)).long() & 0xFFFFFFFF).double() / 2**32


def keep_mask(seed: Tensor, n: int, p: float) -> Tensor:
    """Which of n numbers are kept: those whose `uniform` is at least p."""
    return _keep_bits(seed, _offsets(torch.Size((n,)), seed.device, False), p).bool()


def is_channels_last(h: Tensor) -> bool:
    """Whether an image batch on a CPU is in channels-last memory format (see engines/channels_last.py)."""
    is_candidate = h.ndim == 4 and h.device.type == "cpu" and not torch._C._functorch.is_functorch_wrapped_tensor(h)
    return is_candidate and h.is_contiguous(memory_format=torch.channels_last) and not h.is_contiguous()


def _keep_bits(seed: Tensor, offsets: Tensor, p: float) -> Tensor:
    """1 for each number that is kept and 0 for the others, as integers."""
    # The hash is a signed integer: flipping its highest bit gives the order of unsigned integers. A comparison would
    # take five times as long as clamp and subtract, because its results are bytes.
    last_dropped = math.ceil(p * 2**32) - 2**31 - 1
    return _hash(seed, offsets).bitwise_xor_(-(2**31)).clamp(last_dropped, last_dropped + 1).sub_(last_dropped)


def _hash(seed: Tensor, offsets: Tensor) -> Tensor:
    """A 32-bit hash of (seed, position); int32 wraps around and takes a third of the time of int64 with masks."""
    h = offsets + seed.to(torch.int32)
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        h = _xor_shift_right(h, shift).mul_(factor)
    return _xor_shift_right(h, 15)


def _xor_shift_right(h: Tensor, bits: int) -> Tensor:
    """h ^= h >> bits as a logical shift; the mask is needed because torch shifts arithmetically."""
    return h.bitwise_xor_((h >> bits).bitwise_and_(2 ** (32 - bits) - 1))


def _offsets(shape: torch.Size, device: torch.device, channels_last: bool) -> Tensor:
    """The initial hash value of every position, in the given memory format."""
    if device.type == "cpu" and shape.numel() <= CACHED_NUMEL:
        return torch.from_numpy(_cached_offsets(shape, channels_last))
    offsets = torch.arange(shape.numel(), dtype=torch.int32, device=device).mul_(POSITION_STRIDE).view(shape)
    return offsets.contiguous(memory_format=torch.channels_last) if channels_last else offsets


@lru_cache(maxsize=8)  # a network has few dropout layers, and a run has one batch size
def _cached_offsets(shape: torch.Size, channels_last: bool) -> np.ndarray:
    """`_offsets` in NumPy, because a tensor created inside a PyTorch transform may be unusable after it."""
    offsets = (np.arange(shape.numel(), dtype=np.int32) * np.int32(POSITION_STRIDE)).reshape(shape)
    return np.ascontiguousarray(offsets.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if channels_last else offsets


class SeededDropout(nn.Module):
    """Dropout whose mask is a function of the buffer `seed`, so that a replayed round drops the same units."""

    seed: Tensor

    def __init__(self, p: float, drop_channels: bool = False) -> None:
        super().__init__()
        self.p, self.drop_channels = p, drop_channels
        self.register_buffer("seed", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, h: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return h
        if self.p > MAX_DROP_RATE:
            return h * 0
        shape = torch.Size((*h.shape[:2], *(1,) * (h.ndim - 2))) if self.drop_channels else h.shape
        channels_last = not self.drop_channels and is_channels_last(h)
        keep = _keep_bits(self.seed, _offsets(shape, h.device, channels_last), self.p)
        # The product keeps the memory layout of `h`; selecting by a mask took three times as long and changed it.
        return h / (1 - self.p) * keep.to(h.dtype)


def replace_dropout(module: nn.Sequential) -> nn.Sequential:
    """Replace every dropout layer by `SeededDropout` in place; returns the network."""
    for parent in list(module.modules()):
        for name, child in list(parent._modules.items()):  # named_children would skip the second use of a layer
            if isinstance(child, nn.modules.dropout._DropoutNd):
                drop_channels = isinstance(child, (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d))
                setattr(parent, name, SeededDropout(child.p, drop_channels))
    return module
