"""Speed-ups, compared with numbers worked out by hand."""

import pandas as pd
import pytest

from unskew.reports.group_runs import group_by_setting
from unskew.reports.results_table import results_table, speed_ups
from unskew.reports.speedup import SpeedUp, paper_speed_up, speed_up

from .synthetic_runs import make_run


def curve(values):
    return pd.DataFrame({"round": range(1, len(values) + 1), "value": values})


def test_the_speed_up_of_the_papers_example():
    """A* = 33 %, first reached in round 38 of 200: 200 / 38 = 5.26."""
    method = curve([20.0] * 37 + [33.0] * 163)
    result = paper_speed_up(method, curve([30.0] * 119 + [33.0] + [31.0] * 80), 200)
    assert result.reached
    assert result.factor == pytest.approx(5.26, abs=0.005)


def test_equal_is_reached_and_just_below_is_not():
    assert paper_speed_up(curve([1.0, 2.0]), curve([2.0, 1.0]), 2) == SpeedUp(1.0, True)
    assert paper_speed_up(curve([1.0, 1.999]), curve([2.0, 1.0]), 2) == SpeedUp(1.0, False)
    assert speed_up(curve([1.0, 2.0]), curve([2.0, 1.0])) == SpeedUp(0.5, True)
    assert not speed_up(curve([1.0, 1.999]), curve([2.0, 1.0])).reached


def test_equal_curves_give_one():
    """FedAvg's best is in round 1 of 10: as the paper counts, FedAvg itself would have 10."""
    falling = curve([9.0, *[5.0] * 9])
    assert speed_up(falling, falling) == SpeedUp(1.0, True)
    assert paper_speed_up(falling, falling, 10) == SpeedUp(10.0, True)


def test_each_seed_has_its_own_target():
    """Seed 0: target 40, FedAvg in round 4, moon in round 2. Seed 1: target 50, never. Seed 2 has no FedAvg."""
    runs = [make_run("fedavg", 0, [10, 20, 30, 40]), make_run("fedavg", 1, [10, 50, 20, 20])]
    runs += [
        make_run("moon", 0, [10, 40, 30, 30]),
        make_run("moon", 1, [10, 49, 49, 49]),
        make_run("moon", 2, [90, 90, 90, 90]),
    ]
    (setting,) = group_by_setting(runs)
    baseline, (first, second) = speed_ups(setting)
    assert baseline == [SpeedUp(1.0, True)] * 2
    assert (first, second.reached) == (SpeedUp(2.0, True), False)
    table = results_table(setting)
    at = table.columns.index("speed-up")
    assert [row.cells[at].text for row in table.rows] == ["1.00×", "2.00×"]
    assert [row.cells[at].flag for row in table.rows] == [False, True]


def test_without_fedavg_there_is_no_speed_up():
    (setting,) = group_by_setting([make_run("moon", 0, [10, 20]), make_run("fedprox", 0, [10, 30])])
    assert "speed-up" not in results_table(setting).columns


def test_the_best_mean_of_a_column_is_marked():
    runs = [
        make_run("fedavg", 0, [10, 20]),
        make_run("fedavg", 1, [10, 24]),
        make_run("moon", 0, [10, 30]),
        make_run("moon", 1, [9, 8]),
    ]
    table = results_table(group_by_setting(runs)[0])
    best, final = (table.columns.index(name) for name in ("best, %", "final, %"))
    assert [row.cells[final].text for row in table.rows] == ["22.0 ± 2.8", "19.0 ± 15.6"]
    assert [row.cells[final].best for row in table.rows] == [True, False]
    assert [row.cells[best].best for row in table.rows] == [True, False]  # 22.0 against (30 + 9) / 2
