"""A run's process reuses the memory of freed tensors, because the system would zero new pages one by one."""

import ctypes
import json
import os
import platform
import subprocess
import sys

import pytest

import unskew as us
from unskew.runner.prepare_run import prepare

PROGRAM = """
import ctypes, json, sys, torch
from unskew.runner.process_setup import keep_freed_memory

names = "arena blocks small apart_blocks apart unused freed_small used free top"  # of the C library's heap

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

info = ctypes.CDLL(None).mallinfo2
info.restype = Info
if sys.argv[1] == "keep":
    keep_freed_memory()
tensors = [torch.ones(7 * 2**20) for _ in range(20)]  # 28 MiB each
del tensors
print(json.dumps(info().free))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs mallinfo2 of glibc 2.33 or newer")
def test_freed_memory_is_reused_for_the_next_tensor() -> None:
    """By default a large tensor gets its own pages from the system, which are returned when it is freed."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_")) and k != "LD_PRELOAD"}
    free = {}
    for mode in ("default", "keep"):
        command = [sys.executable, "-c", PROGRAM, mode]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=plain)
        assert done.returncode == 0, done.stderr
        free[mode] = json.loads(done.stdout) / 2**20
    assert free["default"] < 10 * 28
    assert free["keep"] >= 20 * 28


def test_prepare_keeps_freed_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    monkeypatch.setattr("unskew.runner.prepare_run.keep_freed_memory", lambda: called.append(True))
    prepared = prepare(us.load_recipe("quick", ["device=cpu", "engine.workers=1"])[1])
    prepared.federation.engine.close()
    assert called == [True]
