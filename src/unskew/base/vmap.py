"""PyTorch's vmap, which Ctrl-C cannot leave half way: a level that stays behind breaks the process for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from unskew.base.signals import uninterrupted


def vmap(fn: Callable[..., Any], **keys: Any) -> Callable[..., Any]:
    """`fn` over a leading axis; what arrives meanwhile, Ctrl-C or a request to end, arrives after it."""
    mapped = torch.func.vmap(fn, **keys)

    def run(*args: Any) -> Any:
        with uninterrupted():
            return mapped(*args)

    return run
