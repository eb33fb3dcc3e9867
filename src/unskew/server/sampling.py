"""Sampling of a round's clients: a pure function of (seed, round), so that every method sees the same clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np

from unskew.base.keyed_rng import generator
from unskew.base.per_client import MANY_CLIENTS
from unskew.server.absence import AnyAbsence


@dataclass(frozen=True)
class Sampling:
    """Present, absent and sampled clients by round."""

    seed: int
    clients: int
    participation: float
    absences: tuple[AnyAbsence, ...] = ()
    released: bool = False  # sample as the code of FLea and FedLMD does: from the round number alone

    @property
    def clients_per_round(self) -> int:
        """How many clients are sampled in a round in which all are present."""
        return max(int(self.participation * self.clients), 1)

    def absent(self, round: int) -> list[int]:
        """Clients that cannot be reached in this round."""
        return list(_absent(self, round))

    def sampled(self, round: int) -> list[int]:
        """`clients_per_round` clients drawn among those present, or all of them if fewer are present."""
        return list(_sampled(self, round))

    def _shuffled_clients(self, round: int) -> Iterator[int]:
        if self.released:  # their choice() takes the first ones of this permutation
            return map(int, np.random.RandomState(round - 1).permutation(self.clients))
        rng = generator(self.seed, round, "participants")
        if self.clients > MANY_CLIENTS:
            return _lazy_shuffle(rng, self.clients)
        return map(int, rng.permutation(self.clients))


@lru_cache(maxsize=4)
def _absent(sampling: Sampling, round: int) -> tuple[int, ...]:
    away = (each.absent(round, sampling.seed, sampling.clients) for each in sampling.absences)
    return tuple(sorted(set().union(*away)))


@lru_cache(maxsize=4)  # each round is requested three times: for prefetching, running and scoring
def _sampled(sampling: Sampling, round: int) -> tuple[int, ...]:
    absent = set(_absent(sampling, round))
    # Shuffle absent clients too, so that an absence never removes a present client from the sample.
    present = (k for k in sampling._shuffled_clients(round) if k not in absent)
    return tuple(sorted(islice(present, sampling.clients_per_round)))


def _lazy_shuffle(rng: np.random.Generator, count: int) -> Iterator[int]:
    """0..count-1 in random order, drawn as needed: a Fisher-Yates shuffle that stores only the moved entries."""
    moved: dict[int, int] = {}
    for place in range(count):
        other = int(rng.integers(place, count))
        yield moved.get(other, other)
        moved[other] = moved.pop(place, place)
