"""The tables behind the figures, compared with numbers worked out by hand."""

import math

import pandas as pd
import pytest

from unskew.reports import plot_frames
from unskew.reports.group_runs import group_by_setting
from unskew.reports.run_facts import changes, departures, differing_settings, facts

from .synthetic_runs import make_run


def add_rows(run, *rows):
    """Add rows to the metrics of a run: round, who, split, metric, value."""
    new = pd.DataFrame([("made", run.config.label, run.config.seed, *row) for row in rows], columns=run.metrics.columns)
    run.__dict__["metrics"] = pd.concat([run.metrics, new], ignore_index=True)
    return run


def single_setting(*runs):
    (setting,) = group_by_setting(runs)
    return setting


def test_accuracy_on_own_classes_is_weighted_by_the_clients_class_mix():
    """Accuracy 0 for class 0, else 60. Client 0 holds 3, 1, 1, 1 rows: 60 x 3 / 6; client 1 1, 3, 1, 1: 60 x 5 / 6."""
    frame = plot_frames.accuracy_by_client(single_setting(make_run("fedavg", 0, [50.0, 60.0], clients=2)))
    assert frame["value"].tolist() == pytest.approx([30.0, 50.0])


def test_a_class_without_test_rows_is_left_out():
    run = make_run("fedavg", 0, [60.0], clients=1)
    run.__dict__["metrics"] = run.metrics[run.metrics["metric"] != "accuracy/0"]
    frame = plot_frames.accuracy_by_client(single_setting(run))
    assert frame["value"].tolist() == pytest.approx([60.0])
    assert math.isnan(plot_frames.final_accuracy(single_setting(run)).iloc[0, 0])


def test_the_final_model_is_the_one_after_the_exchanges_at_the_end():
    ended = [(2, "server", "test", f"end of run accuracy/{c}", 90.0) for c in range(4)]
    run = add_rows(make_run("fedavg", 0, [50.0, 60.0]), *ended)
    assert plot_frames.final_by_class(run).tolist() == [90.0] * 4


def test_predictions_are_shares_of_their_round():
    frame = plot_frames.by_class(single_setting(make_run("fedavg", 0, [1.0, 2.0])).entries[0], "predicted")
    assert frame.index.tolist() == [1, 2]
    assert frame.loc[2].tolist() == pytest.approx([100 / 6, 50.0, 100 / 6, 100 / 6])


def test_bytes_are_means_over_seeds():
    frame = plot_frames.traffic(
        single_setting(make_run("fedavg", 0, [1.0], up=1000), make_run("fedavg", 1, [1.0], up=3000))
    )
    assert frame.set_index("direction")["bytes"].to_dict() == pytest.approx({"up": 2000.0, "down": 2000.0})


def test_losses_are_means_over_clients_without_non_finite_values():
    """Round 1: losses 1, 2 and an infinite one."""
    run = add_rows(make_run("fedavg", 0, [1.0], clients=2), (1, "client-9", "train", "loss/ce", math.inf))
    assert plot_frames.losses(single_setting(run))["value"].tolist() == [1.5]


def test_clients_left_out_are_counted_by_round():
    run = add_rows(make_run("fedavg", 0, [1.0, 2.0]), *[(2, f"client-{k}", "train", "dropped", 1.0) for k in (0, 3)])
    frame = plot_frames.dropped(single_setting(run))
    assert frame[["round", "value"]].to_numpy().tolist() == [[2.0, 2.0]]


def test_times_are_medians():
    frame = plot_frames.times(
        single_setting(make_run("fedavg", 0, [1.0], seconds=4.0), make_run("fedavg", 1, [1.0], seconds=8.0))
    )
    assert frame.set_index("what")["seconds"].to_dict() == {"train": 4.5, "evaluate": 1.5}


def test_settings_that_differ_between_methods_are_listed():
    setting = single_setting(make_run("fedavg", 0, [1.0]), make_run("scaffold", 0, [1.0], local={"momentum": 0.0}))
    assert differing_settings(setting) == ["local.momentum: 0.9 for fedavg; 0.0 for scaffold"]
    assert facts(setting)[-1].name == "differs by method"
    assert departures(setting) == ["fedavg: made up", "scaffold: made up"]


def test_uneven_seeds_are_listed():
    lines = {
        fact.name: fact.lines
        for fact in facts(single_setting(make_run("fedavg", 0, [1.0]), make_run("moon", 1, [1.0])))
    }
    assert lines["rounds"] == ("1; seeds 0, 1 (fedavg: 0; moon: 1)",)


def test_changes_name_dotted_keys_in_yaml():
    before = {"method": ["fedavg"], "local": {"lr": 0.1, "momentum": 0.9}}
    after = {"method": ["moon", {"moon": {"mu": 1.0}}], "local": {"lr": 0.1, "momentum": 0.0}}
    assert changes(before, after) == "method: [moon, {moon: {mu: 1.0}}]\nlocal.momentum: 0.0"
