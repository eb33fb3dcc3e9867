"""When a step runs eagerly, is captured and is replayed. A fake replaces the capture, which needs a GPU."""

import contextlib
import gc
from collections.abc import Iterator

import pytest
import torch

from unskew.engines.stacked.cuda_graph import CudaGraph, Pool, new_pool

GPU = torch.device("cuda")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The events, in order."""
    recorded: list[str] = []

    class Graph:
        def replay(self) -> None:
            recorded.append("replay")

    @contextlib.contextmanager
    def capture(graph: Graph, pool: Pool) -> Iterator[None]:
        recorded.append("capture" if pool is None else f"capture in {pool}")
        try:
            yield
        finally:
            recorded.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    return recorded


def test_a_step_runs_then_is_captured_then_replayed(events: list[str]) -> None:
    step = CudaGraph(lambda: events.append("run"), GPU)
    for _ in range(4):
        step()
    # The capture runs the function without effect on the device, so the second step is replayed once as well.
    assert events == ["run", "capture", "run", "end", "replay", "replay", "replay"]


def test_steps_of_one_pool_are_captured_in_it(events: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    pool = new_pool(GPU)
    for step in [CudaGraph(lambda: None, GPU, pool) for _ in range(2)]:
        step()
        step()
    assert events == ["capture in (0, 7)", "end", "replay"] * 2
    assert new_pool(torch.device("cpu")) is None


def test_a_cpu_always_runs_eagerly(events: list[str]) -> None:
    step = CudaGraph(lambda: events.append("run"), torch.device("cpu"))
    for _ in range(3):
        step()
    assert events == ["run"] * 3


def test_a_function_that_cannot_be_captured_keeps_running_with_a_warning(events: list[str]) -> None:
    def run() -> None:
        if events and events[-1] == "capture":
            raise RuntimeError("operation not permitted when stream is capturing")
        events.append("run")

    step = CudaGraph(run, GPU)
    step()
    with pytest.warns(UserWarning, match="not permitted"):
        step()
    step()
    assert events == ["run", "capture", "end", "run", "run"]


def test_out_of_memory_errors_are_raised(events: list[str]) -> None:
    def run() -> None:
        if events:
            raise torch.OutOfMemoryError("no memory")
        events.append("run")

    step = CudaGraph(run, GPU)
    step()
    with pytest.raises(torch.OutOfMemoryError):
        step()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:a step could not be captured")
def test_garbage_collection_is_paused_during_capture(events: list[str], fails: bool) -> None:
    """Otherwise an old graph in a reference cycle could be destroyed then, which aborts the capture on a GPU."""

    def run() -> None:
        capturing = bool(events) and events[-1] == "capture"
        events.append(f"collector {gc.isenabled()}")
        if capturing and fails:
            raise RuntimeError("not possible")

    step = CudaGraph(run, GPU)
    step()
    step()
    assert events[:3] == ["collector True", "capture", "collector False"]
    assert gc.isenabled()
