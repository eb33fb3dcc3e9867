"""A function without arguments and results, recorded once as a CUDA graph and then played."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from unskew.base.gc_pause import gc_paused

Pool = Any  # torch's name of one, private and not the same in all its versions


def new_pool(device: torch.device) -> Pool:
    """Memory for recorded functions to share."""
    return torch.cuda.graph_pool_handle() if device.type == "cuda" else None


class CudaGraph:
    """Runs as it is the first time, is recorded the second time, and is played from then on; on a CPU it just runs.

    The first time finds out what is needed (workspaces, kernels, tensors made on first use) outside of any recording.
    What the function reads and writes must stay where it is in memory. One that cannot be recorded (a loss that looks
    at a number on the host) goes on kernel by kernel, with a warning.

    Functions with one `pool` compute in the same memory, the largest one's: right for those that run one after another
    and leave nothing in memory of their own. Without it a cohort of 50 mobilenets whose clients end at different steps
    took 48 GiB for its 25 widths, thirteen times the widest one's.
    """

    def __init__(self, run: Callable[[], None], device: torch.device, pool: Pool = None) -> None:
        self._run, self._records, self._calls, self._pool = run, device.type == "cuda", 0, pool
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self._calls += 1
        if self._records and self._calls == 2:
            self._record()
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            # An old graph that the collector finds and destroys while another is recorded would end the recording.
            with gc_paused(), torch.cuda.graph(graph, pool=self._pool):
                self._run()
        except torch.OutOfMemoryError:  # whoever called knows what to do: train fewer clients at once
            raise
        except RuntimeError as error:
            warnings.warn(f"a step could not be recorded and will be slower: {error}", stacklevel=2)
        else:
            self._graph = graph
