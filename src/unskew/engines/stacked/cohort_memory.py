"""How many clients fit: measured on one step of one client, not guessed by the user."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

SHARE = 0.6  # of the memory there is, for a cohort's training


def available_memory(device: torch.device) -> int:
    """Bytes: free ones on a GPU; on the CPU all that the machine or its container has, so that a resume cuts alike."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cached)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return total if text == "max" else min(total, int(text))


def bytes_of_step(step: Callable[[], Tensor]) -> int:
    """Bytes that one client's backward pass keeps, counted once per storage while the step is recorded."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            step()
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        # A loss with a derivative inside (FedMix): torch.func refuses hooks, so all that is computed counts.
        with _Made(note):
            step()
    return sum(seen.values())


class _Made(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells of every tensor that is made."""

    def __init__(self, note: Callable[[Tensor], Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return tree_map_only(Tensor, self._note, func(*args, **(kwargs or {})))


def cohort_size(per_client: int, budget: int) -> int:
    """At least one client; the factor covers gradients of activations and what the allocator rounds up."""
    return max(int(SHARE * budget) // max(2 * per_client, 1), 1)
