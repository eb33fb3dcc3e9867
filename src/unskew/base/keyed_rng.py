"""Random generators addressed by a key, such as (seed, round, client, "order").

No draw depends on other draws: adding a part shifts no other random number, every method sees the same clients, and
the engine, the number of workers and a resume change nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

_ZERO = np.zeros(4, dtype=np.uint64)  # an array, because Philox spends a third of its time converting an int


def generator(seed: int, *key: int | str) -> np.random.Generator:
    """A fresh generator for a key, seeded with the key's 128-bit hash."""
    seed_words = _PhiloxKey(_digest(seed, *key, bits=128))
    return np.random.Generator(np.random.Philox(seed_words, counter=_ZERO))  # type: ignore[arg-type]  # NumPy names a subclass


def generators(seed: int, round: int, clients: Sequence[int], name: str) -> Iterator[np.random.Generator]:
    """Generators of (round, client, name); use each before taking the next.

    They are one object whose state is reset, which takes half the time of creating a new one.
    """
    shared: np.random.Generator | None = None
    start = hashlib.blake2b(f"{_encode(seed)}|{_encode(round)}|".encode(), digest_size=16)
    for client in clients:
        if shared is None:
            shared = generator(seed, round, client, name)
        else:
            key = start.copy()
            key.update(f"{_encode(client)}|{_encode(name)}".encode())
            shared.bit_generator.state = _initial_state(key.digest())
        yield shared


def hash_key(*key: int | str, bits: int = 32) -> int:
    """An integer hash of a key; lengths are hashed too, so ("a", "bc") and ("ab", "c") differ."""
    return int.from_bytes(_digest(*key, bits=bits))


class _PhiloxKey(ISeedSequence):
    """Hands Philox its two key words; `Philox(key=...)` takes three times as long because it draws a seed first."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        return _to_words(self._key)


def _to_words(key: bytes) -> np.ndarray:
    """A 16-byte big-endian number as two 64-bit words, the lower one first."""
    return np.frombuffer(key[::-1], dtype="<u8")


def _initial_state(key: bytes) -> dict[str, Any]:
    """State of a Philox with this key before its first draw."""
    words = {"counter": _ZERO, "key": _to_words(key)}
    return {
        "bit_generator": "Philox", "state": words, "buffer": _ZERO, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0
    }  # fmt: skip


def _digest(*key: int | str, bits: int) -> bytes:
    return hashlib.blake2b("|".join(map(_encode, key)).encode(), digest_size=bits // 8).digest()


@lru_cache(maxsize=8192, typed=True)  # names repeat throughout a run; clients and rounds repeat within a round
def _encode(word: int | str) -> str:
    return f"{type(word).__name__}{len(str(word))}:{word}"
