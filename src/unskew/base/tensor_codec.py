"""Named tensors to bytes and back, as safetensors and never as a pickle."""

from __future__ import annotations

import safetensors.numpy
import safetensors.torch

from unskew.base.tree import State


def to_bytes(state: State) -> bytes:
    """Named tensors as safetensors bytes; tensors may share memory."""
    return safetensors.numpy.save({name: t.detach().cpu().contiguous().numpy() for name, t in state.items()})


def from_bytes(data: bytes) -> State:
    """The inverse of `to_bytes`."""
    return safetensors.torch.load(data)
