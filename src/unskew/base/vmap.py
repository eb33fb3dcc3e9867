"""PyTorch's vmap, safe against Ctrl-C: an interrupted vmap leaves a level on its stack and breaks the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unskew.base.signals import uninterrupted


def vmap(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """`torch.func.vmap` that defers Ctrl-C and requests to terminate until the call returns."""
    mapped = torch.func.vmap(fn, **options)

    def run(*args: Any) -> Any:
        with uninterrupted():
            return mapped(*args)

    return run
