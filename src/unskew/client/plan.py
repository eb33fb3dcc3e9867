"""Every random choice of a run, as a pure function of (seed, round, client): any round can be replayed alone.

A key never depends on what else was drawn, so adding a part shifts no other number, every method sees the same clients,
and the engine, the number of workers or a resume cannot change anything.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, Literal

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from torch import Tensor

from unskew.base.per_client import MANY
from unskew.protocol.part import Part, Sizes, Stream
from unskew.protocol.work import Work


@dataclass(frozen=True)
class Order:
    """Rows of each step: `index` [steps, batch] into the client's rows, `weight` 1 for real ones and 0 for filler."""

    index: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Absence:
    """Clients that cannot be reached in rounds first..last-1."""

    clients: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Plan:
    """Who takes part when, and in which order and with which draws each client trains."""

    seed: int
    clients: int
    participation: float
    absences: tuple[Absence, ...] = ()
    released: bool = False  # sample clients as the code of FLea and FedLMD does: from the number of the round alone

    def generator(self, *key: int | str) -> np.random.Generator:
        """A fresh generator for a key such as (round, client, "order"); all 128 bits of the key count."""
        words = _Words(_hashed(self.seed, *key, bits=128))
        return np.random.Generator(np.random.Philox(words, counter=_ZERO))  # type: ignore[arg-type]  # NumPy names a subclass

    def _in_turn(self, round: int, clients: Sequence[int], name: str) -> Iterator[np.random.Generator]:
        """Generators of (round, client, name), each to be done with before the next is asked for.

        It is one object that is set anew, in half of the time that a new one takes.
        """
        generator: np.random.Generator | None = None
        start = hashlib.blake2b(f"{_spelt(self.seed)}|{_spelt(round)}|".encode(), digest_size=16)
        for client in clients:
            if generator is None:
                generator = self.generator(round, client, name)
            else:
                key = start.copy()
                key.update(f"{_spelt(client)}|{_spelt(name)}".encode())
                generator.bit_generator.state = _unused(key.digest())
            yield generator

    @property
    def cohort(self) -> int:
        """How many clients take part in a round where all are present."""
        return max(int(self.participation * self.clients), 1)

    def absent(self, round: int) -> list[int]:
        """Clients that cannot be reached in this round."""
        return sorted({k for a in self.absences if a.first <= round < a.last for k in a.clients})

    def participants(self, round: int) -> list[int]:
        """As many as a cohort has, drawn among those present; fewer only if fewer are present."""
        return list(_participants(self, round))

    def _order_of_clients(self, round: int) -> Iterator[int]:
        if self.released:  # what their choice() takes the head of
            return map(int, np.random.RandomState(round - 1).permutation(self.clients))
        generator = self.generator(round, "participants")
        if self.clients > MANY:
            return _shuffled(generator, self.clients)
        return map(int, generator.permutation(self.clients))

    def order(self, round: int, client: int, rows: int, work: Work) -> Order:
        """Shuffled passes; a partial last batch is filled with further rows of the same client at weight 0."""
        (index,) = self.orders(round, [client], [rows], work)
        return Order(torch.from_numpy(index), torch.from_numpy(weights(rows, work)))

    def orders(self, round: int, clients: Sequence[int], rows: Sequence[int], work: Work) -> list[np.ndarray]:
        """`index` of several clients' orders, as NumPy's: torch takes several times as long for so small an array."""
        return [_order(generator, n, work) for generator, n in zip(self._in_turn(round, clients, "order"), rows)]

    def stream_order(self, round: int, client: int, name: str, stream: Stream, steps: int, batch: int) -> Tensor:
        """[steps, batch] rows of a stream: endless shuffled passes, or independent draws."""
        rows, generator = len(stream.x), self.generator(round, client, name)
        if stream.order == "uniform":
            return torch.from_numpy(generator.integers(rows, size=(steps, batch)))
        passes = [generator.permutation(rows) for _ in range(-(-steps * batch // rows))]
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *passes])[: steps * batch]
        return torch.from_numpy(taken.reshape(steps, batch))

    def step_seeds(self, round: int, clients: Sequence[int], steps: Sequence[int]) -> list[np.ndarray]:
        """Of each client the [steps] seeds of its dropout masks, below 2**31.

        They are the upper 31 bits of each half of a word, as `Generator.integers` draws them; a call of it for every
        client takes twice as long as all of this.
        """
        turns = zip(self._in_turn(round, clients, "dropout"), steps)
        words = [generator.bit_generator.random_raw(-(-n // 2)) for generator, n in turns]
        seeds = (np.concatenate([_NO_WORDS, *words]).astype("<u8", copy=False).view("<u4") >> 1).astype(np.int64)
        starts = accumulate((2 * len(drawn) for drawn in words), initial=0)
        return [seeds[start : start + n] for start, n in zip(starts, steps)]

    def part_draws(
        self, part: Part, when: Literal["init", "steps", "share", "seal"], round: int, client: int, sizes: Sizes
    ) -> dict[str, Tensor]:
        """A part's own random tensors; those of "init" do not depend on the round."""
        if type(part).draws is Part.draws:  # most parts draw nothing, and a generator costs as much as a small step
            return {}
        key: Sequence[int | str] = (client, part.name, when) if when == "init" else (round, client, part.name, when)
        drawn = part.draws(when, sizes, self.generator(*key))
        return {name: torch.as_tensor(numbers) for name, numbers in drawn.items()}


_ZERO = np.zeros(4, dtype=np.uint64)  # as words: Philox takes a third of its time to make them of a number
_NO_WORDS = np.zeros(0, dtype=np.uint64)


@lru_cache(maxsize=4)  # a round is asked for while it is made ready, when it is played, and when it is scored
def _participants(plan: Plan, round: int) -> tuple[int, ...]:
    away = set(plan.absent(round))
    # One order for all, whoever is absent.
    present = (k for k in plan._order_of_clients(round) if k not in away)
    return tuple(sorted(islice(present, plan.cohort)))


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


def _order(generator: np.random.Generator, rows: int, work: Work) -> np.ndarray:
    """[steps, batch] rows; a pass that does not fill its batches begins anew until it does."""
    steps, per_epoch = work.steps_for(rows), max(work.steps_per_epoch(rows), 1)
    size, passes = per_epoch * work.batch, -(-steps // per_epoch)
    if passes == 1 and rows == size:  # nothing to copy
        return generator.permutation(rows).reshape(-1, work.batch)[:steps]
    index = np.empty((passes, size), dtype=np.int64)
    for one in index:
        shuffled = generator.permutation(rows)
        one[:] = shuffled if rows == size else np.resize(shuffled, size)
    return index.reshape(passes * per_epoch, work.batch)[:steps]


def weights(rows: int, work: Work) -> np.ndarray:
    """[steps, batch]: 1 for a client's rows, 0 for those that fill the last batch of an epoch."""
    return _weights(rows, work.steps_per_epoch(rows) * work.batch, work.steps_for(rows), work.batch)


@lru_cache(maxsize=256)  # clients of a size share them, in every round
def _weights(rows: int, size: int, steps: int, batch: int) -> np.ndarray:
    row = np.arange(steps * batch).reshape(steps, batch) % max(size, 1)
    return (row < rows).astype(np.float32)


def _shuffled(generator: np.random.Generator, count: int) -> Iterator[int]:
    """0..count-1 in random order, as far as somebody asks: a shuffle that keeps only the places it has moved."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = int(generator.integers(place, count))
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)


def key_of(*key: int | str, bits: int = 32) -> int:
    """A number that differs for different keys; lengths are part of the text, so ("a", "bc") is not ("ab", "c")."""
    return int.from_bytes(_hashed(*key, bits=bits))


def _hashed(*key: int | str, bits: int) -> bytes:
    return hashlib.blake2b("|".join(map(_spelt, key)).encode(), digest_size=bits // 8).digest()


@lru_cache(maxsize=8192, typed=True)  # a key's words come again: names for ever, clients and rounds for a round
def _spelt(word: int | str) -> str:
    return f"{type(word).__name__}{len(str(word))}:{word}"
