"""Every random choice of a client's round, as a function of (seed, round, client): any single round can be replayed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from unskew.base import keyed_rng
from unskew.protocol.part import Part, Sizes, Stream
from unskew.protocol.work import Work


@dataclass(frozen=True)
class BatchOrder:
    """The rows of each step: `index` [steps, batch] into the client's rows, `weight` 1 for real rows, 0 for filler."""

    index: Tensor
    weight: Tensor


@dataclass(frozen=True)
class Plan:
    """The order of rows and all random draws of every client, derived from the run's seed."""

    seed: int

    def generator(self, *key: int | str) -> np.random.Generator:
        """A fresh generator for a key such as (round, client, "order")."""
        return keyed_rng.generator(self.seed, *key)

    def order(self, round: int, client: int, rows: int, work: Work) -> BatchOrder:
        """Shuffled passes; a partial last batch is filled with further rows of the same client at weight 0."""
        (index,) = self.orders(round, [client], [rows], work)
        return BatchOrder(torch.from_numpy(index), torch.from_numpy(weights(rows, work)))

    def orders(self, round: int, clients: Sequence[int], rows: Sequence[int], work: Work) -> list[np.ndarray]:
        """`index` of several clients' orders, as NumPy arrays: torch is several times slower for such small ones."""
        return [
            _order(generator, n, work)
            for generator, n in zip(keyed_rng.generators(self.seed, round, clients, "order"), rows)
        ]

    def stream_order(self, round: int, client: int, name: str, stream: Stream, steps: int, batch: int) -> Tensor:
        """[steps, batch] rows of a stream: shuffled passes without end, or independent draws."""
        rows, generator = len(stream.x), self.generator(round, client, name)
        if stream.order == "uniform":
            return torch.from_numpy(generator.integers(rows, size=(steps, batch)))
        passes = [generator.permutation(rows) for _ in range(-(-steps * batch // rows))]
        taken = np.concatenate([np.zeros(0, dtype=np.int64), *passes])[: steps * batch]
        return torch.from_numpy(taken.reshape(steps, batch))

    def step_seeds(self, round: int, clients: Sequence[int], steps: Sequence[int]) -> list[np.ndarray]:
        """The [steps] seeds of each client's dropout masks, below 2**31.

        They are the upper 31 bits of each half of a 64-bit word, equal to those that `Generator.integers` draws;
        calling it for every client would take twice as long.
        """
        pairs = zip(keyed_rng.generators(self.seed, round, clients, "dropout"), steps)
        words = [generator.bit_generator.random_raw(-(-n // 2)) for generator, n in pairs]
        seeds = (np.concatenate([_NO_WORDS, *words]).astype("<u8", copy=False).view("<u4") >> 1).astype(np.int64)
        starts = accumulate((2 * len(drawn) for drawn in words), initial=0)
        return [seeds[start : start + n] for start, n in zip(starts, steps)]

    def part_draws(
        self, part: Part, when: Literal["init", "steps", "share", "seal"], round: int, client: int, sizes: Sizes
    ) -> dict[str, Tensor]:
        """A part's own random tensors; those of "init" do not depend on the round."""
        if type(part).draws is Part.draws:  # creating a generator costs as much as a small step; most parts need none
            return {}
        key: Sequence[int | str] = (client, part.name, when) if when == "init" else (round, client, part.name, when)
        drawn = part.draws(when, sizes, self.generator(*key))
        return {name: torch.as_tensor(numbers) for name, numbers in drawn.items()}


_NO_WORDS = np.zeros(0, dtype=np.uint64)


def _order(generator: np.random.Generator, rows: int, work: Work) -> np.ndarray:
    """[steps, batch] rows; the last batch of an epoch is filled by repeating the epoch's shuffled rows."""
    steps, per_epoch = work.steps_for(rows), max(work.steps_per_epoch(rows), 1)
    size, passes = per_epoch * work.batch, -(-steps // per_epoch)
    if passes == 1 and rows == size:  # without a copy
        return generator.permutation(rows).reshape(-1, work.batch)[:steps]
    index = np.empty((passes, size), dtype=np.int64)
    for epoch in index:
        shuffled = generator.permutation(rows)
        epoch[:] = shuffled if rows == size else np.resize(shuffled, size)
    return index.reshape(passes * per_epoch, work.batch)[:steps]


def weights(rows: int, work: Work) -> np.ndarray:
    """[steps, batch]: 1 for real rows, 0 for filler in the last batch of an epoch."""
    return _weights(rows, work.steps_per_epoch(rows) * work.batch, work.steps_for(rows), work.batch)


@lru_cache(maxsize=256)  # clients of the same size share the array, in every round
def _weights(rows: int, size: int, steps: int, batch: int) -> np.ndarray:
    row = np.arange(steps * batch).reshape(steps, batch) % max(size, 1)
    return (row < rows).astype(np.float32)
