"""Random generators addressed by a key, such as (seed, round, client, "order").

A key never depends on what else was drawn, so adding a part shifts no other number, every method sees the same clients,
and neither the engine, the number of workers nor a resume can change anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

_ZERO = np.zeros(4, dtype=np.uint64)  # as words: Philox takes a third of its time to make them of a number


def generator(seed: int, *key: int | str) -> np.random.Generator:
    """A fresh generator for a key; all 128 bits of the key's hash count."""
    words = _Words(_hashed(seed, *key, bits=128))
    return np.random.Generator(np.random.Philox(words, counter=_ZERO))  # type: ignore[arg-type]  # NumPy names a subclass


def generators(seed: int, round: int, clients: Sequence[int], name: str) -> Iterator[np.random.Generator]:
    """Generators of (round, client, name), each to be done with before the next is asked for.

    It is one object whose state is set anew, in half of the time that a new one takes.
    """
    shared: np.random.Generator | None = None
    start = hashlib.blake2b(f"{_spelt(seed)}|{_spelt(round)}|".encode(), digest_size=16)
    for client in clients:
        if shared is None:
            shared = generator(seed, round, client, name)
        else:
            key = start.copy()
            key.update(f"{_spelt(client)}|{_spelt(name)}".encode())
            shared.bit_generator.state = _unused(key.digest())
        yield shared


def key_of(*key: int | str, bits: int = 32) -> int:
    """A number that differs for different keys; lengths are part of the text, so ("a", "bc") is not ("ab", "c")."""
    return int.from_bytes(_hashed(*key, bits=bits))


class _Words(ISeedSequence):
    """The key of a generator as its two words: `Philox(key=...)` takes three times as long, drawing a seed first."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        return _words(self._key)


def _words(key: bytes) -> np.ndarray:
    """A number of 16 bytes as two words, the lower one first."""
    return np.frombuffer(key[::-1], dtype="<u8")


def _unused(key: bytes) -> dict[str, Any]:
    """State of a Philox that has this key and has drawn nothing yet."""
    words = {"counter": _ZERO, "key": _words(key)}
    return {
        "bit_generator": "Philox", "state": words, "buffer": _ZERO, "buffer_pos": 4, "has_uint32": 0, "uinteger": 0
    }  # fmt: skip


def _hashed(*key: int | str, bits: int) -> bytes:
    return hashlib.blake2b("|".join(map(_spelt, key)).encode(), digest_size=bits // 8).digest()


@lru_cache(maxsize=8192, typed=True)  # names come again for ever, clients and rounds within a round
def _spelt(word: int | str) -> str:
    return f"{type(word).__name__}{len(str(word))}:{word}"
