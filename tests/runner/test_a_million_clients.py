"""A million clients whose rows are drawn on demand: the contract of every run, and no walk over all of them."""

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
from unskew.server.sampling import Absence, Sampling

from . import toys
from .conftest import Command

MILLION = 1_000_000
SOME = {"name": "on-demand", "clients": MILLION, "rows": 9, "per_client": 2}
FEW = {"partition": SOME, "participation": 4 / MILLION}


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_same_bytes_with_two_workers_and_after_a_resume(method: str, tmp_path: Path) -> None:
    toys.play(tmp_path / "one", method=method, **FEW)
    toys.play(tmp_path / "two", method=method, **FEW | {"engine": {"name": "loop", "workers": 2}})
    toys.assert_same(tmp_path / "one", tmp_path / "two")
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path / "cut", method=method, phase=toys.stop_at("merge", 3), **FEW)
    toys.play(tmp_path / "cut", method=method, resume=True, **FEW)
    toys.assert_same(tmp_path / "one", tmp_path / "cut")


def test_engines_agree() -> None:
    ends = []
    for engine in ("loop", "stacked"):
        keys: dict[str, Any] = FEW | {"engine": {"name": engine, "workers": 1}, "precision": "float64"}
        fed = prepare(us.Experiment(**toys.settings(method="moon", **keys)), data=toys.dataset()).federation
        snap, _ = fed.play(fed.start())
        ends.append(snap.model)
    torch.testing.assert_close(*ends, rtol=1e-9, atol=1e-12)


def test_another_rule_for_the_rows_is_found_out_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        toys.play(tmp_path, phase=toys.stop_at("merge", 2), **FEW)
    monkeypatch.setattr("unskew.data.on_demand._STREAM", 1)
    with pytest.raises(us.UserError, match="expected the partition this run began with"):
        toys.play(tmp_path, resume=True, **FEW)


def test_memory_does_not_grow_with_the_clients() -> None:
    """Set-up and one round's plan of 40,000 and of a million clients: a byte for each would already be seen."""
    peaks = []
    for clients in (40_000, MILLION):
        keys = {"partition": SOME | {"clients": clients}, "participation": 4.5 / clients}
        tracemalloc.start()
        ready = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset())
        ready.federation.sampling.sampled(1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert abs(peaks[1] - peaks[0]) < (MILLION - 40_000) / 2


def test_tables_hold_the_clients_that_were_counted(tmp_path: Path) -> None:
    toys.play(tmp_path, **FEW)
    assert toys.rows_of(tmp_path, "clients")["client"].unique().tolist() == list(range(0, MILLION, 1000))
    (line,) = (s for s in json.loads((tmp_path / "about.json").read_text())["header"] if "counted" in s)
    assert "1,000,000 clients, 1,000 of them counted" in line


def test_command_line_plays_and_shows_it(unskew: Command, tmp_path: Path) -> None:
    keys = ["partition={name: on-demand, clients: 1000000, rows: 20, per_client: 2}", "participation=3e-6"]
    assert unskew("run", "quick", *keys, "rounds=1", "model=mlp", "--out", tmp_path / "run").code == 0
    said = unskew("partition", "quick", *keys, "--csv", tmp_path / "who.csv")
    assert said.code == 0
    assert "a round    3 of 1000000 clients, who hold 4.9 of 10 classes" in said.out
    assert (tmp_path / "who.csv").read_text().splitlines()[2].startswith("1000,")


def test_half_of_all_clients_are_looked_at_by_few(unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are drawn for a few thousand clients, not for 50,000; the work is still that of all."""
    asked: set[int] = set()
    draw = OnDemand._drawn

    def counting(rows: OnDemand, client: int) -> np.ndarray:
        asked.add(client)
        assert len(asked) < 10_000, "too many clients were looked at"
        return draw(rows, client)

    monkeypatch.setattr(OnDemand, "_drawn", counting)
    keys = ["partition={name: on-demand, clients: 100000}", "participation=0.5"]
    found = json.loads(unskew("partition", "quick", *keys, "--json").out)
    assert (found["cohort_size"], found["participants_looked_at"]) == (50_000, 1_000)
    assert found["steps_total"] == 50_000 * found["steps_longest"]
    assert found["cohort_expected"] == found["cohort_lowest"] == 1
    assert any("for about 100 of them type participation=0.001" in line for line in found["warnings"])


def test_those_looked_at_are_participants_of_the_round() -> None:
    for released in (False, True):
        sampling = Sampling(3, 30_000, 0.5, released=released)
        few = describe_split._narrowed(sampling)
        assert len(few.sampled(2)) == 1_000
        assert set(few.sampled(2)) < set(sampling.sampled(2))
    assert describe_split._narrowed(Sampling(3, 20_000, 0.5)) == Sampling(3, 20_000, 0.5)


@pytest.mark.parametrize(("share", "warned"), [(0.5, True), (0.1, False)])
def test_a_run_says_when_hardly_anybody_wants_so_many_in_a_round(share: float, warned: bool) -> None:
    keys = {"partition": SOME | {"clients": 25_000}, "participation": share}
    header = prepare(us.Experiment(**toys.settings(**keys)), data=toys.dataset()).header
    assert any("type participation=0.004" in line for line in header) == warned


def test_participants_of_many_clients_are_distinct_and_drawn_alike() -> None:
    """1000 rounds of 300 of 30,000 clients: each tenth 30,000 times, give or take 5 x 165."""
    sampling = Sampling(5, 30_000, 0.01)
    rounds = [sampling.sampled(t) for t in range(1, 1001)]
    assert all(len(set(chosen)) == 300 and chosen == sorted(chosen) for chosen in rounds)
    tenths = np.histogram(np.concatenate(rounds), 10, (0, 30_000))[0]
    assert np.abs(tenths - 30_000).max() < 5 * 165


def test_all_of_many_clients_can_take_part_and_absence_keeps_the_others() -> None:
    assert Sampling(0, 20_001, 1.0).sampled(1) == list(range(20_001))
    before = Sampling(0, 30_000, 0.001).sampled(1)
    after = Sampling(0, 30_000, 0.001, (Absence((before[0],), 1, 2),)).sampled(1)
    assert set(before[1:]) < set(after)
    assert before[0] not in after
