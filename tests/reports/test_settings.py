"""Grouping runs into settings: which runs are compared with each other."""

import pytest

from unskew.base.errors import UserError
from unskew.reports import group_runs
from unskew.reports.group_runs import group_by_setting

from .synthetic_runs import make_run

CURVE = [10.0, 20.0]


def names(setting):
    return [entry.label for entry in setting.entries]


def test_fedavg_comes_first_and_seeds_belong_together():
    runs = [make_run("moon", 1, CURVE), make_run("fedavg", 0, CURVE), make_run("moon", 0, CURVE)]
    (setting,) = group_by_setting(runs)
    assert names(setting) == ["fedavg", "moon"]
    assert [run.config.seed for run in setting.entries[1].runs] == [0, 1]
    assert setting.seeds == [0, 1]


def test_different_data_are_different_settings():
    settings = group_by_setting(
        [make_run("fedavg", 0, CURVE), make_run("fedavg", 0, CURVE, data="cifar10"), make_run("moon", 0, CURVE)]
    )
    assert [each.name for each in settings] == ["data digits", "data cifar10"]
    assert [names(each) for each in settings] == [["fedavg", "moon"], ["fedavg"]]


def test_data_with_the_same_name_but_other_classes_are_different_settings():
    settings = group_by_setting([make_run("fedavg", 0, CURVE), make_run("moon", 0, CURVE, classes=["a", "b"])])
    assert [names(each) for each in settings] == [["fedavg"], ["moon"]]
    assert "4 classes" in settings[0].name
    assert "2 classes" in settings[1].name


def test_settings_of_a_grid_over_the_skew_are_named_by_it():
    skews = [{"name": "dirichlet", "clients": 5, "alpha": alpha} for alpha in (0.1, 0.5)]
    settings = group_by_setting([make_run("fedavg", 0, CURVE, partition=skew) for skew in skews])
    assert [each.name for each in settings] == ["partition.alpha 0.1", "partition.alpha 0.5"]


def test_a_method_with_its_own_local_work_stays_in_the_setting():
    own = make_run("scaffold", 0, CURVE, local={"momentum": 0.0})
    (setting,) = group_by_setting([make_run("fedavg", 0, CURVE), own])
    assert names(setting) == ["fedavg", "scaffold"]


def test_a_method_with_two_kinds_of_work_splits_the_setting():
    plain = {"momentum": 0.0}
    runs = [
        make_run("fedavg", 0, CURVE),
        make_run("fedavg", 0, CURVE, local=plain),
        make_run("scaffold", 0, CURVE, local=plain),
    ]
    assert [names(each) for each in group_by_setting(runs)] == [["fedavg"], ["fedavg", "scaffold"]]


def test_one_method_with_two_strengths_is_two_entries():
    runs = [make_run(["fedprox", {"prox": {"mu": mu}}], 0, CURVE) for mu in (0.1, 0.5)]
    assert names(group_by_setting(runs)[0]) == ["fedprox (mu 0.1)", "fedprox (mu 0.5)"]


def test_the_same_run_twice_is_refused():
    with pytest.raises(UserError, match=r"one run of fedavg with seed 0, found 2"):
        group_by_setting([make_run("fedavg", 0, CURVE), make_run("fedavg", 0, CURVE)])


def test_the_same_folder_twice_counts_once():
    run = make_run("fedavg", 0, CURVE)
    assert len(group_by_setting([run, run])[0].entries[0].runs) == 1


def test_runs_with_equal_settings_but_different_rows_are_refused(monkeypatch):
    runs = [make_run("fedavg", 0, CURVE), make_run("moon", 0, CURVE)]
    prints = {runs[0].folder: "aa", runs[1].folder: "bb"}
    monkeypatch.setattr(
        group_runs, "read_manifest", lambda folder: {"world": {"data": prints[folder], "partition": "p"}}
    )
    with pytest.raises(UserError, match="expected the same data as"):
        group_by_setting(runs)
