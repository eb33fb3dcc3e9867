"""A run's process keeps the memory of freed tensors: the system would zero it again, page by page."""

import ctypes
import json
import platform
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, json, sys, torch
from unskew.process import keep_freed_memory

names = "arena blocks small apart_blocks apart unused freed_small used free top"  # of the C library's heap

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
if sys.argv[1] == "keep":
    keep_freed_memory()
before = info().apart
tensor = torch.ones(7 * 2**20)  # 28 MiB
apart = info().apart - before
others = [torch.ones(7 * 2**20) for _ in range(20)]
del tensor, others
print(json.dumps([apart, info().free]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only this C library is asked")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="glibc 2.33 or newer tells of its heap")
def test_freed_memory_stays_for_the_next_tensor() -> None:
    """As it is, a large tensor gets pages of its own from the system, which go back with it."""
    found = {}
    for how in ("as it is", "keep"):
        done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        found[how] = [size / 2**20 for size in json.loads(done.stdout)]
    assert found["as it is"][0] >= 28
    assert found["as it is"][1] < 200
    assert found["keep"][0] == 0
    assert found["keep"][1] >= 20 * 28
