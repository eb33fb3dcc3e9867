"""Feature exposure, from the ledger alone: between how many ordered pairs of clients features have passed.

(1) exposure(t) = sum_ij xi_ij / K^2, xi_ij = 1 once client j has received, up to round t, what client i put in

Directed, as FLea's figure needs it: with a tenth of the clients in each round 1 - 0.99^49 = 38.9 % in round 50; the
symmetric reading would give 59 %. A client counts against itself only where it gets its own features back; one that
sent no bytes put nothing in.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from unskew.base.errors import UserError
from unskew.wire.ledger import REFUSED

Pool = Literal["latest", "all"]


def exposure(ledger: pd.DataFrame, kind: str, clients: int, pool: Pool = "latest") -> pd.DataFrame:
    """round, value in percent, for artefacts of a kind that go up and come down again; the ledger's rows in order.

    pool: what comes down holds the latest uploads alone (FLea's buffer) or all that ever came (FedMix's means).
    """
    if clients < 1:
        raise UserError(f"exposure: expected the number of clients, at least 1, found {clients}")
    seen = np.zeros((clients, clients), bool)  # [from, to]
    givers: dict[str, tuple[object, set[int]]] = {}  # part -> when its latest uploads came, and whose are in the pool
    last = int(ledger["round"].max()) if len(ledger) else 0
    by_round = np.zeros(last + 1)
    refused = ledger.loc[ledger["kind"] == REFUSED, ["round", "phase", "client"]].apply(tuple, axis=1)
    sent = ledger[["round", "phase", "client"]].apply(tuple, axis=1) if len(refused) else refused
    ledger = ledger[~(sent.isin(set(refused)) & (ledger["direction"] == "up"))] if len(refused) else ledger
    passed = (ledger["kind"] == kind) & ((ledger["direction"] == "down") | (ledger["bytes"] > 0))
    rows = ledger.loc[passed, ["round", "phase", "client", "direction", "part"]]
    for round, phase, client, direction, part in rows.itertuples(index=False):
        when, inside = givers.get(part, (None, set()))
        if direction == "down":
            seen[sorted(inside), client] = True
            by_round[round] = seen.sum()
        elif pool == "all" or when == (round, phase):
            givers[part] = ((round, phase), inside | {client})
        else:
            givers[part] = ((round, phase), {client})
    values = 100 * np.maximum.accumulate(by_round)[1:] / clients**2
    return pd.DataFrame({"round": range(1, last + 1), "value": values})
