"""Clients whose rows are worked out when somebody asks: a million of them take no memory and no time to set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from unskew.base.errors import UserError
from unskew.base.per_client import ComputedPerClient
from unskew.data.draw_split import Rows

_STREAM = 0xD3A1  # keeps these draws apart from other generators made from the same run seed


class OnDemand(Sequence[Rows]):
    """Rows of client k as a pure function of (seed, k): ascending, each once; other clients may hold them too.

    A client draws which classes it holds, shares its rows out evenly among them, and draws rows of each.
    """

    def __init__(self, piles: list[Rows], seed: int, clients: int, rows: int, per_client: int) -> None:
        """piles: rows of each class; rows: of one client; per_client: its classes."""
        self._piles = [pile for pile in piles if len(pile)]
        self._seed, self._clients, self._rows, self._held = seed, clients, rows, per_client
        self._recent = ComputedPerClient(self._drawn)
        if not 1 <= per_client <= len(self._piles):
            raise UserError(
                f"on-demand: expected per_client from 1 to {len(self._piles)}, the classes that have rows, found "
                f"{per_client}; type per_client: {min(max(per_client, 1), len(self._piles))}"
            )
        fewest = min(len(pile) for pile in self._piles)
        if -(-rows // per_client) > fewest:
            raise UserError(
                f"on-demand: expected at most {fewest} rows a class, those of the smallest class, found {rows} rows of "
                f"{per_client} classes; type rows: {fewest * per_client} or less, or more classes per_client"
            )

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, client: int) -> Rows: ...
    @overload
    def __getitem__(self, client: slice) -> list[Rows]: ...
    def __getitem__(self, client: int | slice) -> Rows | list[Rows]:
        """One client's rows; numbers out of range are refused, as by a list."""
        if isinstance(client, slice):
            return [self._recent[k] for k in range(self._clients)[client]]
        return self._recent[range(self._clients)[client]]

    def _drawn(self, client: int) -> Rows:
        gen = np.random.default_rng([_STREAM, self._seed, client])
        held = gen.choice(len(self._piles), self._held, replace=False)
        sizes = (self._rows + np.arange(self._held)) // self._held  # as even as can be
        picked = [self._piles[c][gen.choice(len(self._piles[c]), n, replace=False)] for c, n in zip(held, sizes)]
        return np.sort(np.concatenate(picked))
