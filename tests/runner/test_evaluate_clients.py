"""`evaluate.clients`: the accuracy for each client, recomputed from the saved model in plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import unskew as us
from unskew.results.client_accuracy import client_accuracy, final_client_accuracy, worst_tenth

from . import toys
from .conftest import Command

CLIENTS = {"evaluate": {"clients": True}}
BY_GROUP = {"partition": {"name": "group"}}
ENGINES = ("loop", "stacked", "plain")


def predictions(folder: Path, data: us.Dataset) -> np.ndarray:
    net = us.load(folder).model.eval()
    with torch.no_grad():
        return net(data.prepare(data.test.x)).argmax(1).numpy()


def engine(name: str) -> dict[str, Any]:
    return {"engine": {"name": name, "workers": 1} if name == "loop" else {"name": name}}


@pytest.mark.parametrize("name", ENGINES)
def test_own_test_rows(name: str, tmp_path: Path) -> None:
    """Client k has group k; a fourth group is only in the test set and counts for nobody."""
    data = toys.grouped()
    assert data.test.group is not None
    data.test.group[:2] = 9
    done = toys.run(tmp_path / "run", data=data, **BY_GROUP, **CLIENTS, **engine(name))
    right, y = predictions(tmp_path / "run", data) == data.test.y.numpy(), data.test.group
    want = {k: 100 * right[y == k].mean() for k in range(3) if (y == k).any()}
    actual = final_client_accuracy(done.metrics).set_index("client")["value"].to_dict()
    assert actual == pytest.approx(want)
    header = us.load(tmp_path / "run").about["header"]
    assert "evaluate   each of 2 clients on its own test rows; 1 without test rows" in header


@pytest.mark.parametrize("name", ENGINES)
def test_test_rows_weighted_by_label_shares(name: str, tmp_path: Path) -> None:
    data = toys.dataset()
    partition = {"name": "dirichlet", "alpha": 0.3, "clients": 3, "min": 1}
    done = toys.run(tmp_path / "run", data=data, partition=partition, **CLIENTS, **engine(name))
    y, right = data.test.y.numpy(), predictions(tmp_path / "run", data) == data.test.y.numpy()
    by_class = np.array([right[y == c].mean() for c in range(3)])
    counts = us.load(tmp_path / "run").clients.pivot(index="client", columns="class", values="rows").to_numpy()
    want = 100 * (counts * by_class).sum(1) / counts.sum(1)
    actual = final_client_accuracy(done.metrics)
    assert actual["value"].tolist() == pytest.approx(want.tolist())
    assert done.summary.clients_mean == pytest.approx(want.mean())
    assert done.summary.worst_tenth == pytest.approx(want.min())
    assert f"worst tenth {want.min():.2f} %" in repr(done)
    assert "worst tenth of clients, %" in done._repr_html_()
    by_round = client_accuracy(done.metrics)
    assert set(by_round["round"]) == {0, 1, 2, 3}


def test_test_sets_with_other_groups_are_weighted_by_label_shares(tmp_path: Path) -> None:
    """As in HAPT, whose test subjects have no training rows."""
    data = toys.grouped()
    assert data.test.group is not None
    data.test.group[:] = 9
    toys.run(tmp_path / "run", data=data, **BY_GROUP, **CLIENTS)
    header = us.load(tmp_path / "run").about["header"]
    assert "evaluate   each of 3 clients on the test rows weighted by its label shares" in header


@pytest.mark.parametrize("data", [toys.dataset(), toys.grouped()], ids=["shares", "own"])
def test_nothing_else_changes(data: us.Dataset, tmp_path: Path) -> None:
    partition = BY_GROUP if data.train.group is not None else {}
    plain = toys.run(tmp_path / "plain", data=data, **partition)
    scored = toys.run(tmp_path / "scored", data=data, **partition, **CLIENTS)
    rows = scored.metrics[~((scored.metrics["split"] == "test") & (scored.metrics["who"] != "server"))]
    columns = [name for name in rows.columns if name != "run"]
    pd.testing.assert_frame_equal(
        rows[columns].reset_index(drop=True), plain.metrics[columns].reset_index(drop=True), check_exact=True
    )
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "scored"))
    assert first == second
    assert (plain.summary.clients_mean, plain.summary.worst_tenth) == (None, None)


def test_after_an_exchange_at_the_end_best_and_final_are_those_of_the_server(tmp_path: Path) -> None:
    plain = toys.run(tmp_path / "plain", method="fedavg+toy-end")
    scored = toys.run(tmp_path / "scored", method="fedavg+toy-end", **CLIENTS)
    names = ("best", "best_round", "final", "mean_last10")
    assert [getattr(plain.summary, n) for n in names] == [getattr(scored.summary, n) for n in names]
    assert scored.summary.clients_mean == pytest.approx(final_client_accuracy(scored.metrics)["value"].mean())


def test_a_last_round_without_scored_clients_has_no_numbers(tmp_path: Path) -> None:
    """Only client 2, which has no test rows, is present in the last round, and its model is its own."""
    net = nn.Sequential(nn.BatchNorm1d(toys.WIDTH), nn.Linear(toys.WIDTH, toys.CLASSES))
    absence = [{"clients": [0, 1], "rounds": [3, 4]}]
    settings = toys.settings(model={"name": "custom", "batchnorm": "local"}, absence=absence, **BY_GROUP, **CLIENTS)
    done = us.run(us.Experiment(**settings), data=toys.grouped(), model=net, out=tmp_path / "run")
    assert client_accuracy(done.metrics)["round"].max() == 2
    assert done.summary.clients_mean is None
    table = us.compare(
        us.Experiment(**settings),
        methods="fedavg,fedprox",
        seeds=0,
        data=toys.grouped(),
        model=net,
        out=tmp_path / "grid",
    )
    assert table.frame["worst_tenth_mean"].isna().all()
    assert "In the last round no client was scored" in table.report.read_text()


def test_it_is_not_in_the_identity_of_runs_without_it() -> None:
    assert us.Experiment().identity_settings()["evaluate"] == {"every": 1}
    assert us.Experiment(evaluate={"clients": True}).identity() != us.Experiment().identity()


def test_private_tensors_are_those_of_the_client(tmp_path: Path) -> None:
    """With local BatchNorm each client that trained in the round is scored with its own statistics."""
    net = nn.Sequential(nn.BatchNorm1d(toys.WIDTH), nn.Linear(toys.WIDTH, toys.CLASSES))
    model = {"name": "custom", "batchnorm": "local"}
    experiment = us.Experiment(**toys.settings(model=model, participation=0.67, **BY_GROUP, **CLIENTS))
    data = toys.grouped()
    done = us.run(experiment, data=data, model=net, out=tmp_path / "run")
    by_round = client_accuracy(done.metrics).groupby("round")["client"].nunique()
    sampled = done.metrics[(done.metrics["round"] == 3) & (done.metrics["metric"] == "loss/ce")]["who"].nunique()
    assert (by_round[0], sampled) == (2, 2)  # of the untrained model, and sampled; client 2 has no test rows
    assert by_round[3] <= sampled
    pooled = done.metrics[(done.metrics["who"] == "server") & (done.metrics["metric"] == "accuracy")]
    assert pooled[pooled["round"] == 3]["value"].item() > 0


def test_worst_tenth() -> None:
    assert worst_tenth([30.0]) == 30.0
    assert worst_tenth([float(i) for i in range(30)]) == 1.0


def test_a_comparison_ranks_by_the_worst_clients(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    words = ("compare", recipe, "--methods", "fedavg,fedprox", "--seeds", "0-1", "--metric", "worst_tenth")
    refused = unskew(*words, "--out", tmp_path / "out")
    assert (refused.code, "add evaluate.clients=true" in refused.err) == (2, True)
    done = unskew(*words, "evaluate.clients=true", "--out", tmp_path / "out", "--jobs", "1")
    assert done.code == 0, done.err
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert {"clients_mean", "worst_tenth"} <= {name.removesuffix("_mean") for name in table.columns} | set(
        table.columns
    )
    page = (tmp_path / "out" / "report.html").read_text()
    assert "worst tenth of clients, %" in page
    assert "Accuracy by client" in page
    assert "Mean of the worst tenth of the clients" in page
