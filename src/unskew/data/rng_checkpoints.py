"""Published splits whose draws fail thousands of times before one comes out: where the generator stands by then.

FedLMD's CIFAR-10 split at alpha 0.05 is draw 19126, and the draws before it take 14 s. All they leave behind is the
generator's state, and rng_checkpoints.json has it. `python benchmarks/partitions.py --known` draws them one by one and
writes that file.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

Key = tuple[Any, ...]  # what the draws depend on, beside the generator


def skip(old: np.random.RandomState, key: Key, most: int) -> int:
    """How many draws are known to fail, at most `most`; the generator is then where they leave it."""
    entry = _known().get(name(old, key))
    if entry is None or entry["failed"] > most:
        return 0
    words = np.frombuffer(base64.b64decode(entry["words"]), dtype="<u4").astype(np.uint32)
    old.set_state(("MT19937", words, *entry["rest"]))
    return int(entry["failed"])


def name(old: np.random.RandomState, key: Key) -> str:
    """Of a generator's state and what is drawn from it."""
    words, rest = _state(old)
    return hashlib.blake2b(words + repr((rest, key)).encode(), digest_size=16).hexdigest()


def entry(old: np.random.RandomState, draw: Callable[[], bool]) -> dict[str, Any]:
    """Draw until one comes out: what rng_checkpoints.json says of the draws before it."""
    failed = 0
    while True:
        words, rest = _state(old)
        if draw():
            return {"failed": failed, "rest": rest, "words": base64.b64encode(words).decode()}
        failed += 1


def _state(old: np.random.RandomState) -> tuple[bytes, list[int | float]]:
    """The words, and the place among them and what is kept of normal numbers."""
    _, words, position, kept, normal = old.get_state(legacy=True)
    return np.asarray(words).astype("<u4").tobytes(), [int(position), int(kept), float(normal)]


@lru_cache(maxsize=1)
def _known() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(files("unskew.data").joinpath("rng_checkpoints.json").read_text())
    return found
