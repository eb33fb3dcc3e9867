"""Tensors that one process writes and another reads."""

import gc
import os

import pytest
import torch

from unskew.engines.loop.shared_tensors import SharedTensors
from unskew.engines.loop.workers import can_fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="worker processes need fork")

STATE = {
    "a/w": torch.randn(3, 5),
    "a/n": torch.tensor(7),
    "half": torch.randn(9).bfloat16(),
    "empty": torch.zeros(0, 4),
    "mask": torch.tensor([True, False, True]),
    "transposed": torch.randn(4, 6).T,
}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


def test_every_dtype_and_shape_is_read_back() -> None:
    memory = SharedTensors()
    assert equal(memory.read(memory.write(STATE)), STATE)
    memory.close()


def test_memory_grows_and_tensors_read_before_stay() -> None:
    memory = SharedTensors()
    small = memory.read(memory.write({"x": torch.ones(4)}))
    large = memory.read(memory.write({"x": torch.full((5000,), 2.0)}))
    assert small["x"].tolist() == [1.0] * 4
    assert large["x"].eq(2.0).all()
    memory.close()


def test_the_parent_reads_tensors_of_a_forked_process() -> None:
    """Also after the child made the file larger than the parent has mapped before."""
    memory = SharedTensors()
    memory.read(memory.write({"x": torch.zeros(1)}))
    big = {"x": torch.arange(100_000)}
    child = os.fork()
    if not child:
        try:
            torch.set_num_threads(1)  # the parent's threads do not exist in a fork
            memory.write(big)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(memory.read([("x", "int64", [100_000], 0)])["x"], big["x"])
    memory.close()


def test_a_temporary_file_replaces_a_missing_memfd_create(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    memory = SharedTensors()
    assert equal(memory.read(memory.write(STATE)), STATE)
    memory.close()
    memory.close()  # closing twice is allowed


def test_dropped_memory_closes_its_file() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        SharedTensors().write(STATE)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before
