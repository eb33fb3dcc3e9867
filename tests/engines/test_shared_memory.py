"""What one process puts in, another takes out."""

import gc
import os

import pytest
import torch

from unskew.engines.loop.shared_memory import SharedMemory
from unskew.engines.loop.workers import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes need fork")

STATE = {
    "a/w": torch.randn(3, 5),
    "a/n": torch.tensor(7),
    "half": torch.randn(9).bfloat16(),
    "none": torch.zeros(0, 4),
    "mask": torch.tensor([True, False, True]),
    "turned": torch.randn(4, 6).T,
}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def test_every_type_and_shape_comes_back() -> None:
    arena = SharedMemory()
    assert same(arena.take(arena.put(STATE)), STATE)
    arena.close()


def test_it_grows_and_what_was_taken_stays() -> None:
    arena = SharedMemory()
    small = arena.take(arena.put({"x": torch.ones(4)}))
    large = arena.take(arena.put({"x": torch.full((5000,), 2.0)}))
    assert small["x"].tolist() == [1.0] * 4
    assert large["x"].eq(2.0).all()
    arena.close()


def test_a_forked_process_writes_what_its_parent_reads() -> None:
    """Also after it grew there: the parent has looked at a smaller one before."""
    arena = SharedMemory()
    arena.take(arena.put({"x": torch.zeros(1)}))
    big = {"x": torch.arange(100_000)}
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)  # the parent's threads are not there
            arena.put(big)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(arena.take([("x", "int64", [100_000], 0)])["x"], big["x"])
    arena.close()


def test_pythons_without_memory_files_have_a_temporary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    arena = SharedMemory()
    assert same(arena.take(arena.put(STATE)), STATE)
    arena.close()
    arena.close()  # a second time does no harm


def test_an_arena_that_is_dropped_closes_its_file() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        SharedMemory().put(STATE)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
