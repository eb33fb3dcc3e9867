"""Runs side by side on NVIDIA's GPUs: by its multi-process service (MPS) kernels of several processes run at once.

Without it processes take turns on the card, whether or not one of them fills it: on an H200 twelve processes with a run
of ten clients and 60 rounds each took 55 s, and 46 with it; six that play two runs each 40. A service that somebody
started, or CUDA_MPS_PIPE_DIRECTORY, is left alone; where the driver cannot start one, processes take turns.
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
USUAL = Path("/tmp/nvidia-mps")  # where CUDA looks for a service if nothing else is said
SECONDS = 30  # in which a service that works has answered
# Waits in the background until all who hold the other end of its input are gone, by whatever death.
KEEPER = f'exec 3<&0; (cat <&3; echo quit | {CONTROL}; rm -rf "${PIPE}") >/dev/null 2>&1 &'
# Whether a process gets a GPU: containers and virtual machines may have the service and no way to it.
TRIAL = """
import ctypes
cuda, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
failed = cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0)
raise SystemExit(bool(failed or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)))
"""


class ProcessStart(NamedTuple):
    """How a process that plays runs is started: its environment, and files that it keeps open."""

    environment: dict[str, str] | None = None
    held: tuple[int, ...] = ()


@contextlib.contextmanager
def sharing(wanted: bool) -> Iterator[ProcessStart]:
    """A service for the processes of a comparison; it ends with the last of them, even if all are killed."""
    if not wanted or PIPE in os.environ or (USUAL / "control").exists() or shutil.which(CONTROL) is None:
        yield ProcessStart()
        return
    held: list[int] = []
    try:
        with uninterrupted():  # a folder without its keeper would stay
            service = _kept(held)
        client = _seen_by_clients(service)
        if not (_ends_well([CONTROL, "-d"], service) and _ends_well([sys.executable, "-c", TRIAL], client)):
            os.close(held.pop())
        yield ProcessStart(client, tuple(held)) if held else ProcessStart()
    finally:
        for mouth in held:
            os.close(mouth)


def _kept(held: list[int]) -> dict[str, str]:
    """The environment of a service that ends, and whose folder goes, when nobody has `held` open any more."""
    folder = tempfile.mkdtemp(prefix="unskew-mps-")  # a socket's path has to be short, which a run's may not be
    environment = os.environ | {PIPE: folder, LOG: folder}
    ear, mouth = os.pipe()
    held.append(mouth)
    with open(ear) as end:
        subprocess.run(["sh", "-c", KEEPER], stdin=end, env=environment, start_new_session=True, check=False)
    return environment


def _seen_by_clients(service: dict[str, str]) -> dict[str, str]:
    """A service numbers the GPUs that it was shown anew; a process that chooses again would choose others."""
    return {name: value for name, value in service.items() if name != VISIBLE}


def _ends_well(words: list[str], environment: dict[str, str]) -> bool:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(words, env=environment, timeout=SECONDS, **quiet).returncode == 0  # type: ignore[call-overload]
    return False
