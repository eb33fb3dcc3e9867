"""Membership inference on real runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import unskew as us
from unskew.audits.membership.final_model import attack_run
from unskew.audits.membership.loss_scores import LabelledRows
from unskew.data.dataset import Split
from unskew.data.digits import digits


def _data() -> us.Dataset:
    """Few training rows, a fifth of them with wrong labels, and many test rows."""
    rows = digits()
    x, y = rows.train.x.numpy(), rows.train.y.numpy().copy()
    rng = np.random.default_rng(0)
    wrong = rng.random(len(y)) < 0.2
    y[wrong] = rng.integers(0, 10, wrong.sum())
    return us.from_arrays(x, y, test=0.85, name="few digits", seed=0)


def _run(folder: Path, data: us.Dataset, rounds: int) -> us.LoadedRun:
    local = {"epochs": 6, "batch": 20, "lr": 0.1, "schedule": "constant"}
    partition = {"name": "iid", "clients": 2}
    experiment = us.Experiment(method="fedavg", rounds=rounds, partition=partition, local=local, model="mlp")
    us.run(experiment, out=folder, data=data)
    return us.load(folder)


def _examples(run: us.LoadedRun, split: Split) -> LabelledRows:
    return LabelledRows(run.prepare(split.x), split.y)


def test_a_run_that_overfits_reveals_its_members(tmp_path: Path) -> None:
    data = _data()
    run = _run(tmp_path / "long", data, rounds=10)
    loss, shadow = attack_run(run, _examples(run, data.train), _examples(run, data.test), count=4)
    assert loss.roc.auc.low > 0.5  # the interval excludes guessing
    assert shadow.roc.auc.low > 0.5
    assert loss.roc.members == len(data.train)
    assert loss.roc.non_members == len(data.test) - len(data.test) // 2


def test_a_network_from_python_is_attacked_only_by_loss(tmp_path: Path) -> None:
    data, net = _data(), torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    experiment = us.Experiment(method="fedavg", rounds=1, partition={"name": "iid", "clients": 2})
    us.run(experiment, out=tmp_path / "own", data=data, model=net)
    run = us.load(tmp_path / "own", model=net)
    (result,) = attack_run(run, _examples(run, data.train), _examples(run, data.test))
    assert result.attack == "loss threshold"


def test_too_few_fresh_rows_are_refused(tmp_path: Path) -> None:
    data = _data()
    run = _run(tmp_path / "short", data, rounds=1)
    rows = _examples(run, data.train)
    with pytest.raises(us.UserError, match="at least 4 rows that were not trained on, found 3"):
        attack_run(run, rows, rows.take(np.arange(3)))
