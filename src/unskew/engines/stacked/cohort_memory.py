"""How many clients fit into memory, measured on one step of one client."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

MEMORY_SHARE = 0.6  # of the available memory, for a cohort's training


def available_memory(device: torch.device) -> int:
    """Free bytes of a GPU; on a CPU all of the machine's or container's, so that a resumed run splits cohorts alike."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + cached)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return total if text == "max" else min(total, int(text))


def bytes_of_step(step: Callable[[], Tensor]) -> int:
    """Bytes that are saved for one client's backward pass; each storage counts once."""
    bytes_by_storage: dict[int, int] = {}

    def record(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        bytes_by_storage[storage.data_ptr()] = storage.nbytes()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
            step()
    except RuntimeError as error:
        if "saved tensor hooks" not in str(error):
            raise
        # A loss that differentiates inside (FedMix): torch.func refuses the hooks, so count every tensor computed.
        with _TensorRecorder(record):
            step()
    return sum(bytes_by_storage.values())


class _TensorRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls a function with every tensor that is created."""

    def __init__(self, record: Callable[[Tensor], Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._record = record

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return tree_map_only(Tensor, self._record, func(*args, **(kwargs or {})))


def cohort_size(per_client: int, budget: int) -> int:
    """Clients that fit, at least one; the factor 2 covers gradients of activations and the allocator's rounding."""
    return max(int(MEMORY_SHARE * budget) // max(2 * per_client, 1), 1)
