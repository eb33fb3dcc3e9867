"""Memory that worker processes and their parent both see: what one of them writes is copied in, and out by others.

Through a pipe it goes in pieces of 64 KiB, with a switch between the processes for each: 6.5 MB took 19 ms of both, and
take 2 ms here. Who writes sees to it that nothing is overwritten too early (engines/loop/workers.py).
"""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import IO, Any

import torch
from torch import Tensor

from unskew.base.tree import State

ALIGNED = 64  # bytes; any type can begin there
Layout = list[tuple[str, str, list[int], int]]  # name, type, shape, where it begins


class SharedMemory:
    """Grows to the most that was written; inherited by forking."""

    def __init__(self) -> None:
        self._file: IO[bytes] = _memory()
        self._seen: mmap.mmap | None = None

    def put(self, state: State) -> Layout:
        """Copy tensors in; the layout says where they are."""
        layout, end = Layout(), 0
        for name, t in state.items():
            layout.append((name, str(t.dtype).removeprefix("torch."), list(t.shape), end))
            end += -(-t.numel() * t.element_size() // ALIGNED) * ALIGNED
        if os.fstat(self._file.fileno()).st_size < end:
            os.ftruncate(self._file.fileno(), end)
        for (_, _, _, start), t in zip(layout, state.values()):
            if t.numel():
                self._view(t.dtype, t.numel(), start).copy_(t.detach().flatten())
        return layout

    def take(self, layout: Any) -> State:
        """Copies of what lies there."""
        found = {}
        for name, kind, shape, start in layout:
            out = found[name] = torch.empty(shape, dtype=getattr(torch, kind))
            if out.numel():
                out.view(-1).copy_(self._view(out.dtype, out.numel(), start))
        return found

    def close(self) -> None:
        self._seen = None
        self._file.close()

    def _view(self, dtype: torch.dtype, count: int, start: int) -> Tensor:
        end = start + count * dtype.itemsize
        if self._seen is None or len(self._seen) < end:
            self._seen = mmap.mmap(self._file.fileno(), os.fstat(self._file.fileno()).st_size)
        return torch.frombuffer(self._seen, dtype=dtype, count=count, offset=start)


def _memory() -> IO[bytes]:
    """A file that no folder lists; many builds of Python lack the call that keeps it off the disk."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("unskew"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
