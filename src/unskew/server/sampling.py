"""Which clients the server asks in a round: a pure function of (seed, round), so every method sees the same clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from unskew.base.keyed_rng import generator
from unskew.base.per_client import MANY


@dataclass(frozen=True)
class Absence:
    """Clients that cannot be reached in rounds first..last-1."""

    clients: tuple[int, ...]
    first: int
    last: int


@dataclass(frozen=True)
class Sampling:
    """Who is present and who is asked to train, by round."""

    seed: int
    clients: int
    participation: float
    absences: tuple[Absence, ...] = ()
    released: bool = False  # sample as the code of FLea and FedLMD does: from the number of the round alone

    @property
    def cohort(self) -> int:
        """How many clients are sampled in a round where all are present."""
        return max(int(self.participation * self.clients), 1)

    def absent(self, round: int) -> list[int]:
        """Clients that cannot be reached in this round."""
        return sorted({k for a in self.absences if a.first <= round < a.last for k in a.clients})

    def sampled(self, round: int) -> list[int]:
        """As many as a cohort has, drawn among those present; fewer only if fewer are present."""
        return list(_sampled(self, round))

    def _shuffled_clients(self, round: int) -> Iterator[int]:
        if self.released:  # what their choice() takes the head of
            return map(int, np.random.RandomState(round - 1).permutation(self.clients))
        rng = generator(self.seed, round, "participants")
        if self.clients > MANY:
            return _lazy_shuffle(rng, self.clients)
        return map(int, rng.permutation(self.clients))


@lru_cache(maxsize=4)  # a round is asked for while it is prefetched, when it is played, and when it is scored
def _sampled(sampling: Sampling, round: int) -> tuple[int, ...]:
    away = set(sampling.absent(round))
    # One order for all clients, so that an absence changes nobody else's turn.
    present = (k for k in sampling._shuffled_clients(round) if k not in away)
    return tuple(sorted(islice(present, sampling.cohort)))


def _lazy_shuffle(rng: np.random.Generator, count: int) -> Iterator[int]:
    """0..count-1 in random order, drawn as needed: a Fisher-Yates shuffle that stores only the moved places."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = int(rng.integers(place, count))
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)
