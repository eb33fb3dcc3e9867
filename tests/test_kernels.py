"""The kernels against PyTorch, in Triton's interpreter on the CPU: run only where Triton is installed."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parent.parent / "benchmarks" / "speed" / "kernels.py"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_kernels_agree_with_pytorch() -> None:
    """In a process of its own: Triton reads its mode once."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(CHECK), "--device", "cpu"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
