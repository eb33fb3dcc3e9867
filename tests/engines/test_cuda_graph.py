"""When a step is run, recorded and played. The recording itself needs a GPU; here it is replaced by a note."""

import contextlib
import gc
from collections.abc import Iterator

import pytest
import torch

from unskew.engines.stacked.cuda_graph import CudaGraph, Pool, new_pool

GPU = torch.device("cuda")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened, in order."""
    happened: list[str] = []

    class Graph:
        def replay(self) -> None:
            happened.append("play")

    @contextlib.contextmanager
    def record(graph: Graph, pool: Pool) -> Iterator[None]:
        happened.append("record" if pool is None else f"record in {pool}")
        try:
            yield
        finally:
            happened.append("end")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", record)
    return happened


def test_run_then_recorded_then_played(seen: list[str]) -> None:
    step = CudaGraph(lambda: seen.append("run"), GPU)
    for _ in range(4):
        step()
    # Recording runs the function without effect on the device, so the second step is played once as well.
    assert seen == ["run", "record", "run", "end", "play", "play", "play"]


def test_steps_of_one_pool_are_recorded_in_it(seen: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    pool = new_pool(GPU)
    for step in [CudaGraph(lambda: None, GPU, pool) for _ in range(2)]:
        step()
        step()
    assert seen == ["record in (0, 7)", "end", "play"] * 2
    assert new_pool(torch.device("cpu")) is None


def test_a_cpu_just_runs(seen: list[str]) -> None:
    step = CudaGraph(lambda: seen.append("run"), torch.device("cpu"))
    for _ in range(3):
        step()
    assert seen == ["run"] * 3


def test_what_cannot_be_recorded_goes_on_with_a_warning(seen: list[str]) -> None:
    def run() -> None:
        if seen and seen[-1] == "record":
            raise RuntimeError("operation not permitted when stream is capturing")
        seen.append("run")

    step = CudaGraph(run, GPU)
    step()
    with pytest.warns(UserWarning, match="not permitted"):
        step()
    step()
    assert seen == ["run", "record", "end", "run", "run"]


def test_want_of_memory_is_not_swallowed(seen: list[str]) -> None:
    def run() -> None:
        if seen:
            raise torch.OutOfMemoryError("no memory")
        seen.append("run")

    step = CudaGraph(run, GPU)
    step()
    with pytest.raises(torch.OutOfMemoryError):
        step()


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.filterwarnings("ignore:a step could not be recorded")
def test_nothing_is_collected_while_a_step_is_recorded(seen: list[str], fails: bool) -> None:
    """An old graph in a circle of references would be destroyed then, which ends the recording on a GPU."""

    def run() -> None:
        recording = bool(seen) and seen[-1] == "record"
        seen.append(f"collector {gc.isenabled()}")
        if recording and fails:
            raise RuntimeError("not possible")

    step = CudaGraph(run, GPU)
    step()
    step()
    assert seen[:3] == ["collector True", "record", "collector False"]
    assert gc.isenabled()
