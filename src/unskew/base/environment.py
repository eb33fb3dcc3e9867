"""Where this process runs: device, cores, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

from unskew.base.errors import UserError

__version__ = "0.1.0"


def pick_device(wanted: str) -> torch.device:
    """`auto` is the GPU if there is one."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(
            f"device: expected a GPU for {wanted}, found none that torch {torch.__version__} can use; "
            "type device=cpu or install a CUDA build of torch"
        )
    device = torch.device(wanted)
    if device.index is not None and device.index >= (there := torch.cuda.device_count()):
        raise UserError(f"device: expected a GPU from cuda:0 to cuda:{there - 1}, found {wanted}")
    return device


def device_name(device: torch.device) -> str:
    """The vendor's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    known = Path("/proc/cpuinfo")  # Linux; elsewhere Python knows
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def commit() -> str:
    """From UNSKEW_COMMIT, or git where the package is a checkout."""
    if given := os.environ.get("UNSKEW_COMMIT"):
        return given
    here = Path(__file__)
    # An installed package may lie inside another project's checkout: only a file that git tracks has a commit here.
    tracked = _git(here.parent, "ls-files", "--error-unmatch", here.name)
    return (_git(here.parent, "rev-parse", "HEAD") if tracked else "") or "unknown"


def _git(folder: Path, *words: str) -> str:
    try:
        asked = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""
