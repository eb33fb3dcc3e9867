"""Exposure from ledgers written by hand and by a simulated federation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import unskew as us
from unskew.audits.metrics.exposure import exposure
from unskew.results.run_tables import LEDGER


def _ledger(*rows: tuple[int, str, int]) -> pd.DataFrame:
    """A ledger from (round, direction, client) of features: downloads before training, uploads after the merge."""
    phase = {"down": "train", "up": "after merge"}
    entries = [(t, phase[way], k, way, "flea", "buffer", "features", 10) for t, way, k in rows]
    return pd.DataFrame(entries, columns=list(LEDGER))


def test_exposure_is_directed_and_counts_only_the_latest_uploads() -> None:
    rows = [(1, "up", 0), (1, "up", 1), (2, "down", 2), (2, "up", 2), (3, "down", 0)]
    table = exposure(_ledger(*rows), "features", clients=3)
    assert table["round"].tolist() == [1, 2, 3]
    assert table["value"].tolist() == pytest.approx([0, 100 * 2 / 9, 100 * 3 / 9])  # 0>2 and 1>2, then only 2>0


def test_pool_all_exposes_every_upload_so_far() -> None:
    rows = [(1, "up", 0), (1, "up", 1), (2, "down", 2), (2, "up", 2), (3, "down", 0)]
    table = exposure(_ledger(*rows), "features", clients=3, pool="all")
    assert table["value"].iloc[-1] == pytest.approx(100 * 5 / 9)  # also 1>0, and client 0 gets its own back


def test_a_round_without_features_keeps_the_previous_value() -> None:
    ledger = _ledger((1, "up", 0), (2, "down", 1), (3, "down", 1))
    weights = pd.DataFrame([(5, "train", 0, "down", "model", "weights", "weights", 1)], columns=list(LEDGER))
    table = exposure(pd.concat([ledger, weights]), "features", clients=2)
    assert table["value"].tolist() == [0, 25, 25, 25, 25]


def test_a_client_that_sent_no_bytes_exposes_nothing() -> None:
    ledger = _ledger((1, "up", 0), (1, "up", 1), (2, "down", 2))
    ledger.loc[(ledger["client"] == 1) & (ledger["direction"] == "up"), "bytes"] = 0
    assert exposure(ledger, "features", clients=3)["value"].iloc[-1] == pytest.approx(100 / 9)


def test_other_kinds_expose_nothing() -> None:
    assert exposure(_ledger((1, "up", 0), (2, "down", 1)), "raw", clients=2)["value"].tolist() == [0, 0]


def test_a_tenth_of_the_clients_for_fifty_rounds_gives_the_directed_value() -> None:
    values = []
    for seed in range(5):
        rng, rows = np.random.default_rng(seed), []
        for t in range(1, 51):
            chosen = rng.choice(100, 10, replace=False)
            rows += [(t, "down", int(k)) for k in chosen if t > 1] + [(t, "up", int(k)) for k in chosen]
        table = exposure(_ledger(*rows), "features", clients=100)
        assert table["value"].iloc[0] == 0
        values.append(table["value"].iloc[-1])
    assert np.mean(values) == pytest.approx(38.9, abs=1.5)  # 1 - 0.99^49; the symmetric reading gives 59 or more


def test_no_clients_are_refused() -> None:
    with pytest.raises(us.UserError, match="number of clients"):
        exposure(_ledger(), "features", clients=0)
