"""The tables behind the figures, against numbers by hand."""

import math

import pandas as pd
import pytest

from unskew.report import plot_frames
from unskew.report.group_runs import settings_of
from unskew.report.run_facts import changes, departures, facts, own_settings

from .made import made


def more(run, *rows):
    """The run with further rows: round, who, split, metric, value."""
    new = pd.DataFrame([("made", run.config.label, run.config.seed, *row) for row in rows], columns=run.metrics.columns)
    run.__dict__["metrics"] = pd.concat([run.metrics, new], ignore_index=True)
    return run


def one(*runs):
    (setting,) = settings_of(runs)
    return setting


def test_own_classes_weigh_the_accuracy_of_a_class_by_its_share_at_the_client():
    """Accuracy 0 for class 0, else 60. Client 0 holds 3, 1, 1, 1 rows: 60 x 3 / 6; client 1 1, 3, 1, 1: 60 x 5 / 6."""
    found = plot_frames.own_classes(one(made("fedavg", 0, [50.0, 60.0], clients=2)))
    assert found["value"].tolist() == pytest.approx([30.0, 50.0])


def test_a_class_without_test_rows_counts_nowhere():
    run = made("fedavg", 0, [60.0], clients=1)
    run.__dict__["metrics"] = run.metrics[run.metrics["metric"] != "accuracy/0"]
    found = plot_frames.own_classes(one(run))
    assert found["value"].tolist() == pytest.approx([60.0])
    assert math.isnan(plot_frames.final_accuracy(one(run)).iloc[0, 0])


def test_the_final_model_is_the_one_after_the_exchanges_at_the_end():
    ended = [(2, "server", "test", f"end of run accuracy/{c}", 90.0) for c in range(4)]
    run = more(made("fedavg", 0, [50.0, 60.0]), *ended)
    assert plot_frames.final_by_class(run).tolist() == [90.0] * 4


def test_predictions_are_shares_of_their_round():
    found = plot_frames.by_class(one(made("fedavg", 0, [1.0, 2.0])).entries[0], "predicted")
    assert found.index.tolist() == [1, 2]
    assert found.loc[2].tolist() == pytest.approx([100 / 6, 50.0, 100 / 6, 100 / 6])


def test_bytes_are_means_over_seeds():
    found = plot_frames.traffic(one(made("fedavg", 0, [1.0], up=1000), made("fedavg", 1, [1.0], up=3000)))
    assert found.set_index("direction")["bytes"].to_dict() == pytest.approx({"up": 2000.0, "down": 2000.0})


def test_losses_are_means_over_clients_and_leave_out_what_is_not_finite():
    """Round 1: losses 1, 2 and an infinite one."""
    run = more(made("fedavg", 0, [1.0], clients=2), (1, "client-9", "train", "loss/ce", math.inf))
    assert plot_frames.losses(one(run))["value"].tolist() == [1.5]


def test_clients_left_out_are_counted_by_round():
    run = more(made("fedavg", 0, [1.0, 2.0]), *[(2, f"client-{k}", "train", "dropped", 1.0) for k in (0, 3)])
    found = plot_frames.dropped(one(run))
    assert found[["round", "value"]].to_numpy().tolist() == [[2.0, 2.0]]


def test_times_are_medians():
    found = plot_frames.times(one(made("fedavg", 0, [1.0], seconds=4.0), made("fedavg", 1, [1.0], seconds=8.0)))
    assert found.set_index("what")["seconds"].to_dict() == {"train": 4.5, "evaluate": 1.5}


def test_settings_that_are_not_the_same_for_all_methods_are_told():
    setting = one(made("fedavg", 0, [1.0]), made("scaffold", 0, [1.0], local={"momentum": 0.0}))
    assert own_settings(setting) == ["local.momentum: 0.9 for fedavg; 0.0 for scaffold"]
    assert facts(setting)[-1].name == "not the same for all"
    assert departures(setting) == ["fedavg: made up", "scaffold: made up"]


def test_uneven_seeds_are_told():
    told = {fact.name: fact.lines for fact in facts(one(made("fedavg", 0, [1.0]), made("moon", 1, [1.0])))}
    assert told["rounds"] == ("1; seeds 0, 1 (fedavg: 0; moon: 1)",)


def test_changes_name_dotted_keys_in_yaml():
    before = {"method": ["fedavg"], "local": {"lr": 0.1, "momentum": 0.9}}
    after = {"method": ["moon", {"moon": {"mu": 1.0}}], "local": {"lr": 0.1, "momentum": 0.0}}
    assert changes(before, after) == "method: [moon, {moon: {mu: 1.0}}]\nlocal.momentum: 0.0"
