"""From the section `absence` to clients and rounds; scenarios and ranks need the split and the number of rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from unskew.base.errors import UserError
from unskew.base.keyed_rng import generator
from unskew.base.per_client import MANY_CLIENTS
from unskew.config.absence_config import END, AbsenceConfig
from unskew.server.absence import Absence, AnyAbsence, RandomDropout, RandomSessions

LEAVES = 4  # of the scenario `sequential`: at 2/6, 3/6, 4/6 and 5/6 of the rounds
IN_ORDER = 4  # up to so many clients leave one by one from the largest on; more leave in random groups


class RunFacts(NamedTuple):
    """What absences are resolved with; sizes and counts are computed when a ranking or a class needs them."""

    clients: int
    rounds: int
    seed: int
    sizes: Callable[[], Sequence[int]]  # rows of each client
    counts: Callable[[], np.ndarray]  # rows by client and class


def resolve(config: AbsenceConfig, run: RunFacts) -> list[AnyAbsence]:
    """One entry of the section."""
    if config.dropout is not None:
        return [RandomDropout(config.dropout)] if config.dropout else []
    if config.sessions is not None:
        return [RandomSessions(config.sessions.on, config.sessions.off)]
    return [each for each in _intervals(config, run) if each.clients]


def intervals_of(absences: Sequence[AnyAbsence]) -> list[list[int]]:
    """Client, first round and end of every absence that is not drawn."""
    return sorted([k, a.first, a.end] for a in absences if isinstance(a, Absence) for k in a.clients)


def _intervals(config: AbsenceConfig, run: RunFacts) -> list[Absence]:
    if config.trace is not None:
        if unknown := [k for k, _, _ in config.intervals if k >= run.clients]:
            raise UserError(f"absence: {config.trace}: expected clients in 0..{run.clients - 1}, found {unknown[0]}")
        return [Absence((k,), first, end) for k, first, end in config.intervals]
    if config.scenario is not None:
        return _scenario(config.scenario, _by_size(run.sizes()), run.rounds, run.seed)
    assert config.rounds is not None
    first, end = config.rounds
    if config.classes is not None:
        return [Absence(_holders(config, run.counts()), first, end)]
    if config.rank is not None:
        if config.rank > run.clients:
            raise UserError(f"absence.clients: expected a rank up to {run.clients}, found {config.clients}")
        return [Absence((_by_size(run.sizes())[config.rank - 1],), first, end)]
    assert not isinstance(config.clients, str)
    assert config.clients is not None
    return [Absence(config.clients, first, end)]


def _by_size(sizes: Sequence[int]) -> list[int]:
    """Clients from the largest on; of equal ones the lower number comes first."""
    if len(sizes) > MANY_CLIENTS:
        raise UserError(f"absence: expected at most {MANY_CLIENTS:,} clients to rank by size, found {len(sizes):,}")
    return sorted(range(len(sizes)), key=lambda k: (-sizes[k], k))


def _holders(config: AbsenceConfig, counts: np.ndarray) -> tuple[int, ...]:
    """Clients with more than the given share of the rows of one of the classes; counts: [clients, classes]."""
    classes = list(config.classes or ())
    if unknown := [c for c in classes if not 0 <= c < counts.shape[1]]:
        raise UserError(f"absence.classes: expected classes in 0..{counts.shape[1] - 1}, found {unknown[0]}")
    share = counts[:, classes] / np.maximum(counts[:, classes].sum(0), 1)
    return tuple(map(int, np.flatnonzero((share > config.share).any(1))))


def _scenario(name: str, ranked: list[int], rounds: int, seed: int) -> list[Absence]:
    """The FedDig paper's scenarios; its rounds count from 0 and its runs have 300 of them."""

    def at(share: float) -> int:
        return round(share * rounds) + 1

    largest = (ranked[0],)
    if name == "pilot":
        return [Absence(largest, at(1 / 6), at(1 / 3))]
    if name == "temporary":
        return [Absence(largest, at(1 / 3), at(2 / 3))]
    if name == "permanent":
        return [Absence(largest, at(1 / 3), END)]
    if name == "two-groups":
        half = (len(ranked) + 1) // 2
        return [Absence(tuple(ranked[half:]), 1, at(1 / 3)), Absence(tuple(ranked[:half]), at(1 / 3), END)]
    order = ranked
    if len(ranked) > IN_ORDER:
        order = [ranked[i] for i in generator(seed, "sequential").permutation(len(ranked))]
    groups = [tuple(map(int, group)) for group in np.array_split(order, LEAVES)]
    return [Absence(group, at((2 + i) / 6), END) for i, group in enumerate(groups) if group]
