"""A function without arguments and results, captured once as a CUDA graph and then replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from unskew.base.gc_pause import gc_paused

Pool = Any  # torch's type is private and differs between versions


def new_pool(device: torch.device) -> Pool:
    """A memory pool for graphs to share; None on a CPU."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


class CudaGraph:
    """Runs eagerly the first time, is captured the second time, and replayed from then on; on a CPU always eager.

    The eager run allocates everything that is made on first use (workspaces, kernels, tensors) outside of the capture.
    The function must read and write at fixed addresses. A function that cannot be captured (a loss that reads a number
    on the host) keeps running eagerly, with a warning.

    Functions with the same `pool` share its memory, which is as large as the largest needs. They must run one after
    another and leave no results in it. Without a shared pool, a cohort of 50 mobilenets whose clients end at different
    steps took 48 GiB for its 25 widths, thirteen times that of the widest.
    """

    def __init__(self, run: Callable[[], None], device: torch.device, pool: Pool = None) -> None:
        self._run, self._can_capture, self._calls, self._pool = run, device.type == "cuda", 0, pool
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._can_capture and self._calls == 2:
            self._capture()
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            # If the garbage collector destroyed an old graph now, this capture would fail.
            with gc_paused(), torch.cuda.graph(graph, pool=self._pool):
                self._run()
        except torch.OutOfMemoryError:  # the caller can train fewer clients at once
            raise
        except RuntimeError as error:
            warnings.warn(
                f"a step could not be captured as a CUDA graph and runs slower without: {error}", stacklevel=2
            )
        else:
            self._graph = graph
