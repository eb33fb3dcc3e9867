"""Who is absent in a round: by intervals, drawn for each round, or in sessions. Pure functions of (seed, round).

Every method of a comparison and every resume therefore sees the same absences.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from unskew.base.keyed_rng import generator


@dataclass(frozen=True)
class Absence:
    """Clients that cannot be reached in rounds first..end-1."""

    clients: tuple[int, ...]
    first: int
    end: int

    def absent(self, round: int, seed: int, clients: int) -> Iterable[int]:
        return self.clients if self.first <= round < self.end else ()

    def describe(self, rounds: int) -> str:
        """One line for the header; empty if it concerns none of the run's rounds."""
        first, last = self.first, min(self.end - 1, rounds)
        if first > last or not self.clients:
            return ""
        when = f"in round {first}" if first == last else f"in rounds {first} to {last}"
        many = len(self.clients) > 1
        return f"{f'{len(self.clients):,} clients are' if many else f'client {self.clients[0]} is'} absent {when}"


@dataclass(frozen=True)
class RandomDropout:
    """Each client is absent in each round with the same probability."""

    share: float

    def absent(self, round: int, seed: int, clients: int) -> Iterable[int]:
        drawn = generator(seed, round, "dropout").random(clients)
        return map(int, np.flatnonzero(drawn < self.share))

    def describe(self, rounds: int) -> str:
        return f"every client is absent in {100 * self.share:g} % of the rounds, drawn" if self.share else ""


@dataclass(frozen=True)
class RandomSessions:
    """Clients come and go: geometric sessions with mean lengths in rounds, in their steady state from round 1 on."""

    on: float
    off: float

    def absent(self, round: int, seed: int, clients: int) -> Iterable[int]:
        return map(int, np.flatnonzero(_away(self, seed, clients, round)))

    def describe(self, rounds: int) -> str:
        return f"clients come and go, present for {self.on:g} and absent for {self.off:g} rounds on average"


AnyAbsence = Absence | RandomDropout | RandomSessions


@lru_cache(maxsize=4)  # the state of the round before is usually there
def _away(sessions: RandomSessions, seed: int, clients: int, round: int) -> np.ndarray:
    """Whether each client is away. A round's state follows from the one before and its own draws."""
    start = _cached_round(sessions, seed, clients, round)
    away = _STATES.get((sessions, seed, clients, start))
    if away is None:
        away = generator(seed, 1, "sessions").random(clients) < sessions.off / (sessions.on + sessions.off)
        start = 1
    for t in range(start + 1, round + 1):
        drawn = generator(seed, t, "sessions").random(clients)
        away = np.where(away, drawn >= 1 / sessions.off, drawn < 1 / sessions.on)
    _STATES.clear()  # only the latest round is needed for the next
    _STATES[sessions, seed, clients, round] = away
    return away


_STATES: dict[tuple[RandomSessions, int, int, int], np.ndarray] = {}


def _cached_round(sessions: RandomSessions, seed: int, clients: int, round: int) -> int:
    """The latest round up to this one whose state is kept; 0 if there is none."""
    kept = [t for each, s, k, t in _STATES if (each, s, k) == (sessions, seed, clients) and t <= round]
    return max(kept, default=0)
