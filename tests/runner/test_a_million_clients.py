"""A million clients whose rows are drawn on demand: the guarantees of every run, without a loop over all clients."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unskew as us
from unskew.data.on_demand import OnDemand
from unskew.describe import describe_split
from unskew.runner.prepare_run import prepare
from unskew.server.absence import Absence
from unskew.server.sampling import Sampling

from . import toys
from .conftest import Command

MILLION = 1_000_000
ON_DEMAND = {"name": "on-demand", "clients": MILLION, "rows": 9, "per_client": 2}
SETTINGS = {"partition": ON_DEMAND, "participation": 4 / MILLION}


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_same_bytes_with_two_workers_and_after_a_resume(method: str, tmp_path: Path) -> None:
    toys.run(tmp_path / "one", method=method, **SETTINGS)
    toys.run(tmp_path / "two", method=method, **SETTINGS | {"engine": {"name": "loop", "workers": 2}})
    toys.assert_same(tmp_path / "one", tmp_path / "two")
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path / "resumed", method=method, phase=toys.stop_at("merge", 3), **SETTINGS)
    toys.run(tmp_path / "resumed", method=method, resume=True, **SETTINGS)
    toys.assert_same(tmp_path / "one", tmp_path / "resumed")


def test_engines_agree() -> None:
    models = []
    for engine in ("loop", "stacked"):
        keys: dict[str, Any] = SETTINGS | {"engine": {"name": engine, "workers": 1}, "precision": "float64"}
        fed = prepare(us.Experiment(**toys.settings(method="moon", **keys)), data=toys.dataset()).federation
        snap, _ = fed.run_round(fed.start())
        models.append(snap.model)
    torch.testing.assert_close(*models, rtol=1e-9, atol=1e-12)


def test_another_rule_for_the_rows_is_refused_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.run(tmp_path, phase=toys.stop_at("merge", 2), **SETTINGS)
    monkeypatch.setattr("unskew.data.on_demand._STREAM", 1)
    with pytest.raises(us.UserError, match="expected the partition this run was started with"):
        toys.run(tmp_path, resume=True, **SETTINGS)


def test_memory_does_not_grow_with_the_clients() -> None:
    """Setup and sampling for 40,000 and for a million clients: even half a byte per client would fail."""
    peaks = []
    for clients in (40_000, MILLION):
        keys = {"partition": ON_DEMAND | {"clients": clients}, "participation": 4.5 / clients}
        tracemalloc.start()
        prepared = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset())
        prepared.federation.sampling.sampled(1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert abs(peaks[1] - peaks[0]) < (MILLION - 40_000) / 2


def test_client_table_has_the_counted_clients(tmp_path: Path) -> None:
    toys.run(tmp_path, **SETTINGS)
    assert toys.rows_of(tmp_path, "clients")["client"].unique().tolist() == list(range(0, MILLION, 1000))
    (line,) = (s for s in json.loads((tmp_path / "about.json").read_text())["header"] if "counted" in s)
    assert "1,000,000 clients, 1,000 of them counted" in line


def test_command_line_runs_and_describes_it(unskew: Command, tmp_path: Path) -> None:
    keys = ["partition={name: on-demand, clients: 1000000, rows: 20, per_client: 2}", "participation=3e-6"]
    assert unskew("run", "quick", *keys, "rounds=1", "model=mlp", "--out", tmp_path / "run").code == 0
    result = unskew("partition", "quick", *keys, "--csv", tmp_path / "who.csv")
    assert result.code == 0
    assert "a round    3 of 1000000 clients, which together hold 4.9 of 10 classes" in result.out
    assert (tmp_path / "who.csv").read_text().splitlines()[2].startswith("1000,")


def test_half_of_all_clients_are_described_from_few(unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are drawn for a few thousand clients, not for 50,000; the reported work is that of all."""
    asked: set[int] = set()
    draw = OnDemand._draw

    def count_and_draw(rows: OnDemand, client: int) -> np.ndarray:
        asked.add(client)
        assert len(asked) < 10_000, "rows of too many clients were drawn"
        return draw(rows, client)

    monkeypatch.setattr(OnDemand, "_draw", count_and_draw)
    keys = ["partition={name: on-demand, clients: 100000}", "participation=0.5"]
    description = json.loads(unskew("partition", "quick", *keys, "--json").out)
    assert (description["cohort_size"], description["participants_inspected"]) == (50_000, 1_000)
    assert description["steps_total"] == 50_000 * description["steps_longest"]
    assert description["cohort_expected"] == description["cohort_lowest"] == 1
    assert any("for about 100 clients type participation=0.001" in line for line in description["warnings"])


def test_described_clients_are_participants_of_the_round() -> None:
    for released in (False, True):
        sampling = Sampling(3, 30_000, 0.5, released=released)
        few = describe_split._limit_cohort(sampling)
        assert len(few.sampled(2)) == 1_000
        assert set(few.sampled(2)) < set(sampling.sampled(2))
    assert describe_split._limit_cohort(Sampling(3, 20_000, 0.5)) == Sampling(3, 20_000, 0.5)


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (0.1, False)])
def test_a_run_warns_of_very_large_rounds(share: float, warned: bool) -> None:
    keys = {"partition": ON_DEMAND | {"clients": 25_000}, "participation": share}
    header = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset()).header
    assert any("type participation=0.004" in line for line in header) == warned


def test_participants_of_many_clients_are_distinct_and_uniform() -> None:
    """1000 rounds of 300 of 30,000 clients: 30,000 in each tenth of them, within 5 standard deviations of 165."""
    sampling = Sampling(5, 30_000, 0.01)
    rounds = [sampling.sampled(t) for t in range(1, 1001)]
    assert all(len(set(chosen)) == 300 and chosen == sorted(chosen) for chosen in rounds)
    tenths = np.histogram(np.concatenate(rounds), 10, (0, 30_000))[0]
    assert np.abs(tenths - 30_000).max() < 5 * 165


def test_all_of_many_clients_can_be_sampled_and_absence_keeps_the_others() -> None:
    assert Sampling(0, 20_001, 1.0).sampled(1) == list(range(20_001))
    before = Sampling(0, 30_000, 0.001).sampled(1)
    after = Sampling(0, 30_000, 0.001, (Absence((before[0],), 1, 2),)).sampled(1)
    assert set(before[1:]) < set(after)
    assert before[0] not in after
