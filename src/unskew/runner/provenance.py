"""Provenance of a run: device, engine, versions, commit."""

from __future__ import annotations

import os
import platform
from typing import Any

import numpy as np
import torch

from unskew.base.environment import __version__, commit_hash, device_name
from unskew.engines.engine import Engine

JOBS = "UNSKEW_JOBS"  # set by a comparison for its workers: how many runs share the device, which stretches the seconds


def describe(engine: Engine) -> dict[str, Any]:
    """The environment, saved with the results."""
    device = engine.device
    return {
        "unskew": __version__,
        "commit": commit_hash(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "device": device_name(device),
        "device_type": device.type,
        "engine": engine.name,
        "workers": engine.workers,
        "jobs": os.environ.get(JOBS, "1"),
        "system": platform.system(),
    }
