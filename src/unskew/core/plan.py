"""Every random choice of a run, as a pure function of (seed, round, client): any round can be replayed alone.

A key never depends on what else was drawn, so adding a part shifts no other number, every method sees the same clients,
and the engine, the number of workers or a resume cannot change anything.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Literal

import numpy as np
import torch
from numpy.random.bit_generator import ISeedSequence
from torch import Tensor

from unskew.core.part import Part, Sizes, Stream
from unskew.core.per_client import MANY
from unskew.core.work import Work


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
        words = _Words(key_of(self.seed, *key, bits=128))
        return np.random.Generator(np.random.Philox(words))  # type: ignore[arg-type]  # NumPy names a subclass there

    @property
    def cohort(self) -> int:
        """How many clients take part in a round where all are present."""
        return max(int(self.participation * self.clients), 1)

    def absent(self, round: int) -> list[int]:
        """Clients that cannot be reached in this round."""
        return sorted({k for a in self.absences if a.first <= round < a.last for k in a.clients})

    def participants(self, round: int) -> list[int]:
        """As many as a cohort has, drawn among those present; fewer only if fewer are present."""
        away = set(self.absent(round))
        # One order for all, whoever is absent.
        present = (k for k in self._order_of_clients(round) if k not in away)
        return sorted(islice(present, self.cohort))

    def _order_of_clients(self, round: int) -> Iterator[int]:
        if self.released:  # what their choice() takes the head of
            return map(int, np.random.RandomState(round - 1).permutation(self.clients))
        generator = self.generator(round, "participants")
        if self.clients > MANY:
            return _shuffled(generator, self.clients)
        return map(int, generator.permutation(self.clients))

    def order(self, round: int, client: int, rows: int, work: Work) -> Order:
        """Shuffled passes; a partial last batch is filled with further rows of the same client at weight 0."""
        steps, per_epoch = work.steps_for(rows), max(work.steps_per_epoch(rows), 1)
        generator = self.generator(round, client, "order")
        size, epochs = per_epoch * work.batch, -(-steps // per_epoch)
        # NumPy, because a round makes thousands of these small arrays, and torch takes several times as long for each.
        index = np.empty((epochs, size), dtype=np.int64)
        for epoch in index:
            shuffled = generator.permutation(rows)
            # Repeats the order until it is long enough.
            epoch[:] = shuffled[:size] if rows >= size else np.resize(shuffled, size)
        shape = (-1, work.batch) if steps else (0, work.batch)
        return Order(torch.from_numpy(index.reshape(shape)[:steps]), _weights(rows, size, steps, work.batch))

    def stream_order(self, round: int, client: int, name: str, stream: Stream, steps: int, batch: int) -> Tensor:
        """[steps, batch] rows of a stream: endless shuffled passes, or independent draws."""
        rows, generator = len(stream.x), self.generator(round, client, name)
        if stream.order == "uniform":
            return torch.from_numpy(generator.integers(rows, size=(steps, batch)))
        passes = [generator.permutation(rows) for _ in range(-(-steps * batch // rows))]
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *passes])[: steps * batch]
        return torch.from_numpy(taken.reshape(steps, batch))

    def step_seeds(self, round: int, client: int, steps: int) -> Tensor:
        """[steps] seeds of the dropout masks."""
        return torch.from_numpy(self.generator(round, client, "dropout").integers(2**31, size=steps))

    def part_draws(
        self, part: Part, when: Literal["init", "steps", "share", "seal"], round: int, client: int, sizes: Sizes
    ) -> dict[str, Tensor]:
        """A part's own random tensors; those of "init" do not depend on the round."""
        if type(part).draws is Part.draws:  # most parts draw nothing, and a generator costs as much as a small step
            return {}
        key: Sequence[int | str] = (client, part.name, when) if when == "init" else (round, client, part.name, when)
        drawn = part.draws(when, sizes, self.generator(*key))
        return {name: torch.as_tensor(numbers) for name, numbers in drawn.items()}


class _Words(ISeedSequence):
    """The key of a generator as its two words: `Philox(key=...)` takes three times as long, drawing a seed first."""

    def __init__(self, key: int) -> None:
        self._key = key

    def generate_state(self, n_words: int, dtype: object = np.uint32) -> np.ndarray:
        return np.array([self._key % 2**64, self._key >> 64], dtype=np.uint64)


@lru_cache(maxsize=256)  # clients of a size share them, in every round
def _weights(rows: int, size: int, steps: int, batch: int) -> Tensor:
    """[steps, batch]: 1 for a client's rows, 0 for those that fill the last batch of an epoch of `size`."""
    row = torch.arange(steps * batch).view(steps, batch) % max(size, 1)
    return (row < rows).float()


def _shuffled(generator: np.random.Generator, count: int) -> Iterator[int]:
    """0..count-1 in random order, as far as somebody asks: a shuffle that keeps only the places it has moved."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = int(generator.integers(place, count))
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)


def key_of(*key: int | str, bits: int = 32) -> int:
    """A number that differs for different keys; lengths are part of the text, so ("a", "bc") is not ("ab", "c")."""
    text = "|".join(f"{type(word).__name__}{len(str(word))}:{word}" for word in key)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=bits // 8).digest())
