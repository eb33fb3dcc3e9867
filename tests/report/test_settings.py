"""Which runs are compared with which."""

import pytest

from unskew.base.errors import UserError
from unskew.report import group_runs as module
from unskew.report.group_runs import settings_of

from .made import made

CURVE = [10.0, 20.0]


def names(setting):
    return [entry.label for entry in setting.entries]


def test_fedavg_comes_first_and_seeds_belong_together():
    (found,) = settings_of([made("moon", 1, CURVE), made("fedavg", 0, CURVE), made("moon", 0, CURVE)])
    assert names(found) == ["fedavg", "moon"]
    assert [run.config.seed for run in found.entries[1].runs] == [0, 1]
    assert found.seeds == [0, 1]


def test_other_data_are_another_setting():
    found = settings_of([made("fedavg", 0, CURVE), made("fedavg", 0, CURVE, data="cifar10"), made("moon", 0, CURVE)])
    assert [setting.name for setting in found] == ["data digits", "data cifar10"]
    assert [names(setting) for setting in found] == [["fedavg", "moon"], ["fedavg"]]


def test_data_of_one_name_with_other_classes_are_another_setting():
    found = settings_of([made("fedavg", 0, CURVE), made("moon", 0, CURVE, classes=["a", "b"])])
    assert [names(setting) for setting in found] == [["fedavg"], ["moon"]]
    assert "4 classes" in found[0].name
    assert "2 classes" in found[1].name


def test_a_grid_over_the_skew_is_named_by_it():
    skews = [{"name": "dirichlet", "clients": 5, "alpha": alpha} for alpha in (0.1, 0.5)]
    found = settings_of([made("fedavg", 0, CURVE, partition=skew) for skew in skews])
    assert [setting.name for setting in found] == ["partition.alpha 0.1", "partition.alpha 0.5"]


def test_work_that_is_a_methods_own_stays_in_the_comparison():
    own = made("scaffold", 0, CURVE, local={"momentum": 0.0})
    (found,) = settings_of([made("fedavg", 0, CURVE), own])
    assert names(found) == ["fedavg", "scaffold"]


def test_a_method_with_two_kinds_of_work_splits_the_setting():
    plain = {"momentum": 0.0}
    runs = [made("fedavg", 0, CURVE), made("fedavg", 0, CURVE, local=plain), made("scaffold", 0, CURVE, local=plain)]
    assert [names(setting) for setting in settings_of(runs)] == [["fedavg"], ["fedavg", "scaffold"]]


def test_one_method_with_two_strengths_is_two_entries():
    runs = [made(["fedprox", {"prox": {"mu": mu}}], 0, CURVE) for mu in (0.1, 0.5)]
    assert names(settings_of(runs)[0]) == ["fedprox (mu 0.1)", "fedprox (mu 0.5)"]


def test_the_same_run_twice_is_refused():
    with pytest.raises(UserError, match=r"one run of fedavg with seed 0, found 2"):
        settings_of([made("fedavg", 0, CURVE), made("fedavg", 0, CURVE)])


def test_the_same_folder_twice_counts_once():
    run = made("fedavg", 0, CURVE)
    assert len(settings_of([run, run])[0].entries[0].runs) == 1


def test_equal_settings_with_other_rows_are_refused(monkeypatch):
    runs = [made("fedavg", 0, CURVE), made("moon", 0, CURVE)]
    prints = {runs[0].folder: "aa", runs[1].folder: "bb"}
    monkeypatch.setattr(module, "manifest_of", lambda folder: {"world": {"data": prints[folder], "partition": "p"}})
    with pytest.raises(UserError, match="expected the data of"):
        settings_of(runs)
