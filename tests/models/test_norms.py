"""BatchNorm policies: averaged, local, frozen or converted to GroupNorm."""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import unskew as us
from unskew.engines.stacked.stacked_layers import use_stacked_layers
from unskew.models.model import Model

NORM = ["0.1.weight", "0.1.bias", "0.1.running_mean", "0.1.running_var", "0.1.num_batches_tracked"]


def network() -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU()), nn.Linear(6, 3))


def run_policy(policy: str, folder: Path, rounds: int = 3) -> us.Run:
    gen, y = np.random.default_rng(0), np.arange(60) % 3
    data = us.from_arrays((gen.normal(size=(60, 5)) + 4 * np.eye(3, 5)[y] + 1).astype("float32"), y)
    local, engine = {"batch": 8, "lr": 0.1}, {"name": "loop", "workers": 1}
    options = {"partition": {"name": "iid", "clients": 3}, "local": local, "engine": engine, "record": {"rounds": [1]}}
    experiment = us.Experiment(rounds=rounds, model={"batchnorm": policy}, **options)
    return us.run(experiment, data=data, model=network(), out=folder)


def final_state(run: us.Run) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(run.folder / "model.safetensors")


def test_average_updates_the_statistics(tmp_path: Path) -> None:
    state = final_state(run_policy("average", tmp_path / "run"))
    assert state["0.1.running_mean"].abs().sum() > 0.1
    assert state["0.1.num_batches_tracked"] > 0


def test_local_statistics_stay_with_the_client(tmp_path: Path) -> None:
    """The server's BatchNorm tensors do not change, none is sent, and those of two clients differ."""
    from safetensors.torch import load_file

    run = run_policy("local", tmp_path / "run")
    state, start = final_state(run), Model(network()).initial
    assert all(torch.equal(state[name], start[name]) for name in NORM)
    assert not torch.equal(state["0.0.weight"], start["0.0.weight"])
    sent = load_file(run.folder / "messages" / "000001-0.safetensors")
    assert not [name for name in sent if name.split("/")[-1] in NORM]
    client_states = [load_file(path) for path in sorted((run.folder / "checkpoint" / "clients").iterdir())]
    assert set(client_states[0]) == {f"model/{name}" for name in NORM}
    assert not torch.equal(client_states[0]["model/0.1.running_mean"], client_states[1]["model/0.1.running_mean"])
    size = sum(t.numel() * t.element_size() for name, t in start.items() if name not in NORM)
    assert run.summary.bytes_down == 3 * 3 * size
    scored = run.metrics[(run.metrics.metric.str.startswith("predicted/")) & (run.metrics["round"] == 3)]
    assert scored.value.sum() == 3 * 12  # twelve test rows, each scored by three clients' models


def test_frozen_keeps_the_initial_statistics(tmp_path: Path) -> None:
    state, start = final_state(run_policy("frozen", tmp_path / "run")), Model(network()).initial
    assert all(torch.equal(state[name], start[name]) for name in NORM[2:])
    assert not torch.equal(state["0.1.weight"], start["0.1.weight"])


def test_group_has_no_statistics(tmp_path: Path) -> None:
    state = final_state(run_policy("group", tmp_path / "run"))
    assert set(state) == {"0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias", "1.weight", "1.bias"}


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (6, 2), (7, 1)])
def test_groups_divide_the_channels(channels: int, groups: int) -> None:
    model = Model(nn.Sequential(nn.BatchNorm1d(channels), nn.Linear(channels, 2)), batchnorm="group")
    assert model._train[0].num_groups == groups


@pytest.mark.parametrize("policy", ["average", "local", "frozen", "group"])
def test_header_names_the_policy(policy: str) -> None:
    from unskew.runner.prepare_run import prepare

    experiment = us.Experiment(model={"name": "resnet8", "batchnorm": policy}, engine={"name": "loop", "workers": 1})
    assert any(line.startswith(f"batchnorm  {policy}: ") for line in prepare(experiment).header)


def test_all_policies_learn(tmp_path: Path) -> None:
    """After three rounds the loss is less than half of the untrained model's under every policy."""
    for policy in ("average", "local", "frozen", "group"):
        metrics = run_policy(policy, tmp_path / policy).metrics
        loss = metrics[(metrics.metric == "loss") & (metrics.split == "test")].set_index("round").value
        assert loss[3] < loss[0] / 2, policy


def test_local_scores_only_clients_with_rows(tmp_path: Path) -> None:
    """Twenty clients share twelve training rows: the empty ones have no model of their own to score."""
    x, y = np.random.default_rng(0).normal(size=(16, 5)).astype("float32"), np.arange(16) % 3
    data = us.from_arrays(x, y, x_test=x[:4], y_test=y[:4])
    partition = {"name": "dirichlet", "clients": 20, "alpha": 0.1}
    keys = {"model": {"batchnorm": "local"}, "engine": {"name": "loop", "workers": 1}, "rounds": 1}
    run = us.run(us.Experiment(partition=partition, **keys), data=data, model=network(), out=tmp_path / "run")
    held = pd.read_parquet(tmp_path / "run" / "clients.parquet").groupby("client")["rows"].sum()
    scored = run.metrics[run.metrics.metric.str.startswith("predicted/") & (run.metrics["round"] == 1)].value.sum()
    assert (held == 0).any()
    assert scored == 4 * (held > 0).sum()


def test_gradient_of_a_frozen_scale_is_accurate_with_a_large_mean() -> None:
    """Statistics with a mean of 30: without centring first, the gradient is a difference of large numbers."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten()).eval()
    layer[0].running_mean.fill_(30.0)
    stacked = use_stacked_layers(copy.deepcopy(layer))
    x, gradients = 30 + torch.randn(64, 3, 8, 8), []
    for net, rows in ((stacked, x), (layer.double(), x.double())):
        net(rows).square().sum().backward()
        gradients.append(net[0].weight.grad.double())
    torch.testing.assert_close(gradients[0], gradients[1], rtol=3e-6, atol=0.0)
