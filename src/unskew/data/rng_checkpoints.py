"""Saved generator states that skip the thousands of failed draws before a published split.

FedLMD's CIFAR-10 split at alpha 0.05 is draw 19126, and the draws before it take 14 s. Their only effect is the
generator's state, which rng_checkpoints.json stores. `python benchmarks/partitions.py --known` makes all the draws and
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

Key = tuple[Any, ...]  # all inputs of the draws except the generator


def skip_failed_draws(random_state: np.random.RandomState, key: Key, limit: int) -> int:
    """Move the generator past the draws known to fail and return their number: 0 if unknown or more than `limit`."""
    entry = _checkpoints().get(checkpoint_name(random_state, key))
    if entry is None or entry["failed"] > limit:
        return 0
    words = np.frombuffer(base64.b64decode(entry["words"]), dtype="<u4").astype(np.uint32)
    random_state.set_state(("MT19937", words, *entry["rest"]))
    return int(entry["failed"])


def checkpoint_name(random_state: np.random.RandomState, key: Key) -> str:
    """A hash of the generator's state and of the inputs of the draws."""
    words, rest = _state(random_state)
    return hashlib.blake2b(words + repr((rest, key)).encode(), digest_size=16).hexdigest()


def make_checkpoint(random_state: np.random.RandomState, draw: Callable[[], bool]) -> dict[str, Any]:
    """Draw until one succeeds; returns the entry of rng_checkpoints.json for the failed draws before it."""
    failed = 0
    while True:
        words, rest = _state(random_state)
        if draw():
            return {"failed": failed, "rest": rest, "words": base64.b64encode(words).decode()}
        failed += 1


def _state(random_state: np.random.RandomState) -> tuple[bytes, list[int | float]]:
    """The state words; then the position in them and the cached normal number."""
    _, words, position, has_normal, normal = random_state.get_state(legacy=True)
    return np.asarray(words).astype("<u4").tobytes(), [int(position), int(has_normal), float(normal)]


@lru_cache(maxsize=1)
def _checkpoints() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = json.loads(files("unskew.data").joinpath("rng_checkpoints.json").read_text())
    return entries
