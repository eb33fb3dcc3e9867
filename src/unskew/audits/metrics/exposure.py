"""Feature exposure, from the ledger alone: the share of ordered pairs of clients between which features have passed.

(1) exposure(t) = sum_ij xi_ij / K^2, xi_ij = 1 if client j has received features of client i up to round t

Directed, as FLea's figure needs it: with a tenth of the clients in each round 1 - 0.99^49 = 38.9 % in round 50; the
symmetric reading would give 59 %. The pair (i, i) counts only if client i gets its own features back; a client that
sent no bytes contributed none.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from unskew.base.errors import UserError
from unskew.wire.ledger import REFUSED

Pool = Literal["latest", "all"]


def exposure(ledger: pd.DataFrame, kind: str, clients: int, pool: Pool = "latest") -> pd.DataFrame:
    """round, value in percent, for artefacts of a kind that are uploaded and broadcast; the ledger must be in order.

    pool: a broadcast contains only the latest uploads (FLea's buffer) or all uploads so far (FedMix's means).
    """
    if clients < 1:
        raise UserError(f"exposure: expected the number of clients, at least 1, found {clients}")
    received = np.zeros((clients, clients), bool)  # [from, to]
    pools: dict[str, tuple[object, set[int]]] = {}  # part -> round and phase of its latest uploads, clients in the pool
    last = int(ledger["round"].max()) if len(ledger) else 0
    by_round = np.zeros(last + 1)
    # Uploads of a reply that the server refused are never broadcast.
    refused = ledger.loc[ledger["kind"] == REFUSED, ["round", "phase", "client"]].apply(tuple, axis=1)
    sent = ledger[["round", "phase", "client"]].apply(tuple, axis=1) if len(refused) else refused
    ledger = ledger[~(sent.isin(set(refused)) & (ledger["direction"] == "up"))] if len(refused) else ledger
    passed = (ledger["kind"] == kind) & ((ledger["direction"] == "down") | (ledger["bytes"] > 0))
    rows = ledger.loc[passed, ["round", "phase", "client", "direction", "part"]]
    for round, phase, client, direction, part in rows.itertuples(index=False):
        latest, contributors = pools.get(part, (None, set()))
        if direction == "down":
            received[sorted(contributors), client] = True
            by_round[round] = received.sum()
        elif pool == "all" or latest == (round, phase):
            pools[part] = ((round, phase), contributors | {client})
        else:
            pools[part] = ((round, phase), {client})
    values = 100 * np.maximum.accumulate(by_round)[1:] / clients**2
    return pd.DataFrame({"round": range(1, last + 1), "value": values})
