"""Clients whose rows are drawn on access: a million clients need no memory and no time to set up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from unskew.base.errors import UserError
from unskew.base.per_client import ComputedPerClient
from unskew.data.draw_split import IntArray

_STREAM = 0xD3A1  # stream id: separates these draws from others with the same seed


class OnDemand(Sequence[IntArray]):
    """Rows of client k as a pure function of (seed, k): ascending, without duplicates; other clients may hold them too.

    A client draws its classes, divides its number of rows evenly among them, and draws that many rows of each.
    """

    def __init__(self, class_rows: list[IntArray], seed: int, clients: int, rows: int, per_client: int) -> None:
        """class_rows: rows of each class; rows: number per client; per_client: number of classes per client."""
        self._class_rows = [members for members in class_rows if len(members)]
        self._seed, self._clients, self._rows, self._per_client = seed, clients, rows, per_client
        self._cached = ComputedPerClient(self._draw)
        if not 1 <= per_client <= len(self._class_rows):
            raise UserError(
                f"on-demand: expected per_client from 1 to {len(self._class_rows)}, the number of classes with rows, "
                f"found {per_client}; type per_client: {min(max(per_client, 1), len(self._class_rows))}"
            )
        fewest = min(len(members) for members in self._class_rows)
        if -(-rows // per_client) > fewest:
            raise UserError(
                f"on-demand: expected at most {fewest} rows per class, the size of the smallest class, "
                f"found {rows} rows of {per_client} classes; type rows: {fewest * per_client} or less, "
                "or a larger per_client"
            )

    def __len__(self) -> int:
        return self._clients

    @overload
    def __getitem__(self, client: int) -> IntArray: ...
    @overload
    def __getitem__(self, client: slice) -> list[IntArray]: ...
    def __getitem__(self, client: int | slice) -> IntArray | list[IntArray]:
        """One client's rows; an index out of range raises IndexError, as in a list."""
        if isinstance(client, slice):
            return [self._cached[k] for k in range(self._clients)[client]]
        return self._cached[range(self._clients)[client]]

    def _draw(self, client: int) -> IntArray:
        gen = np.random.default_rng([_STREAM, self._seed, client])
        classes = gen.choice(len(self._class_rows), self._per_client, replace=False)
        sizes = (self._rows + np.arange(self._per_client)) // self._per_client  # differ by at most one
        pools = [self._class_rows[c] for c in classes]
        return np.sort(np.concatenate([pool[gen.choice(len(pool), n, replace=False)] for pool, n in zip(pools, sizes)]))
