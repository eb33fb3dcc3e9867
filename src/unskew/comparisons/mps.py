"""Parallel runs on one NVIDIA GPU: its multi-process service (MPS) lets kernels of several processes run at once.

Without it the processes take turns, even if each alone cannot fill the GPU. On an H200, twelve processes with one run
of ten clients and 60 rounds each took 55 s without and 46 s with it; six processes with two runs each took 40 s. An
MPS service that is already running, or a CUDA_MPS_PIPE_DIRECTORY that is set, is left alone. Where the driver cannot
start MPS, the processes take turns.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from unskew.base.signals import uninterrupted

CONTROL = "nvidia-cuda-mps-control"
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
VISIBLE = "CUDA_VISIBLE_DEVICES"
DEFAULT_PIPE = Path("/tmp/nvidia-mps")  # where CUDA looks for a service by default
TIMEOUT = 30  # seconds; a working service answers sooner
# Waits in the background until every process that holds the write end of its input has ended, even by SIGKILL.
KEEPER = f'exec 3<&0; (cat <&3; echo quit | {CONTROL}; rm -rf "${PIPE}") >/dev/null 2>&1 &'
# Tests that a process can use the GPU: containers and virtual machines may have the service but no access to it.
TRIAL = """
import ctypes
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
raise SystemExit(bool(failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)))
"""


class ProcessStart(NamedTuple):
    """How to start a worker process: its environment, and file descriptors that it keeps open."""

    environment: dict[str, str] | None = None
    keep_open: tuple[int, ...] = ()


@contextlib.contextmanager
def mps_service(wanted: bool) -> Iterator[ProcessStart]:
    """Start MPS for the worker processes; it ends with the last of them, even if all are killed."""
    if not wanted or PIPE in os.environ or (DEFAULT_PIPE / "control").exists() or shutil.which(CONTROL) is None:
        yield ProcessStart()
        return
    keep_open: list[int] = []
    try:
        with uninterrupted():  # otherwise an interruption could leave the folder without its keeper
            service = _start_keeper(keep_open)
        client = _client_environment(service)
        if not (_succeeds([CONTROL, "-d"], service) and _succeeds([sys.executable, "-c", TRIAL], client)):
            os.close(keep_open.pop())
        yield ProcessStart(client, tuple(keep_open)) if keep_open else ProcessStart()
    finally:
        for descriptor in keep_open:
            os.close(descriptor)


def _start_keeper(keep_open: list[int]) -> dict[str, str]:
    """Start the process that stops MPS and deletes its folder once `keep_open` is closed everywhere.

    Returns the environment of the service.
    """
    folder = tempfile.mkdtemp(prefix="unskew-mps-")  # not in the run's folder: a socket's path must be short
    environment = os.environ | {PIPE: folder, LOG: folder}
    read_end, write_end = os.pipe()
    keep_open.append(write_end)
    with open(read_end) as end:
        subprocess.run(["sh", "-c", KEEPER], stdin=end, env=environment, start_new_session=True, check=False)
    return environment


def _client_environment(service: dict[str, str]) -> dict[str, str]:
    """Without CUDA_VISIBLE_DEVICES: the service renumbers its GPUs, so a client that selects again would get others."""
    return {name: value for name, value in service.items() if name != VISIBLE}


def _succeeds(command: list[str], environment: dict[str, str]) -> bool:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, env=environment, timeout=TIMEOUT, **quiet).returncode == 0  # type: ignore[call-overload]
    return False
