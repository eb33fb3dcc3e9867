"""The environment of this process: device, cores, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from unskew.base.errors import UserError

__version__ = "0.1.0"


def pick_device(name: str) -> torch.device:
    """The device of that name; `auto` is the GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            f"device: expected a GPU for {name}, found none that torch {torch.__version__} can use; "
            "type device=cpu or install a CUDA build of torch"
        )
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"device: expected auto, cpu, cuda or cuda:N, found {name!r}") from error
    if device.index is not None and device.index >= (count := torch.cuda.device_count()):
        raise UserError(f"device: expected a GPU from cuda:0 to cuda:{count - 1}, found {name}; type device=cuda:0")
    return device


def device_name(device: torch.device) -> str:
    """The vendor's name for a GPU, or the CPU's model name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")  # Linux only; `platform` answers on other systems
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def core_count() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit_hash() -> str:
    """The hash in UNSKEW_COMMIT, else the one git reports if the package is a checkout, else `unknown`."""
    if given := os.environ.get("UNSKEW_COMMIT"):
        return given
    file = Path(__file__)
    # An installed package may be inside another project's checkout, whose commit must not be reported: ask git first
    # whether it tracks this file.
    tracked = _git(file.parent, "ls-files", "--error-unmatch", file.name)
    return (_git(file.parent, "rev-parse", "HEAD") if tracked else "") or "unknown"


def _git(folder: Path, *args: str) -> str:
    """Output of a git command, empty if it fails."""
    try:
        done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
