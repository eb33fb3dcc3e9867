"""bf16: blocks compute in it, while everything that is stored, summed or measured stays in float32."""

from pathlib import Path

import pytest
import torch
from torch import nn

import unskew as us
from unskew.models.model import Model
from unskew.protocol.step_view import FrozenModel

SETTING = {
    "rounds": 1,
    "partition": {"name": "iid", "clients": 3},
    "local": {"steps": 2, "batch": 16, "lr": 0.05},
    "model": "cnn",
}


@pytest.mark.parametrize("method", ["fedavg", "moon", "scaffold"])
@pytest.mark.parametrize("engine", ["loop", "stacked"])
def test_bf16_is_close_to_float32_but_not_equal(method: str, engine: str, tmp_path: Path) -> None:
    weights = {}
    for precision in ("float32", "bf16"):
        experiment = us.Experiment(method=method, precision=precision, engine={"name": engine, "workers": 1}, **SETTING)
        run = us.run(experiment, out=tmp_path / precision)
        weights[precision] = torch.cat([t.flatten() for t in us.load(run.folder).model.state_dict().values()])
        assert weights[precision].dtype == torch.float32
    distance = (weights["bf16"] - weights["float32"]).norm() / weights["float32"].norm()
    assert 0 < distance < 0.01


@pytest.mark.parametrize("engine", ["plain", "loop", "stacked"])
def test_batchnorm_of_flat_rows_trains_in_bf16(engine: str, tmp_path: Path) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU())
        net = nn.Sequential(body, nn.Linear(16, 10))
    keys = {name: value for name, value in SETTING.items() if name != "model"}
    experiment = us.Experiment(method="fedavg", precision="bf16", engine={"name": engine, "workers": 1}, **keys)
    run = us.run(experiment, out=tmp_path / "run", model=net)
    states = us.load(run.folder, model=net).model.state_dict()
    assert all(bool(t.isfinite().all()) for t in states.values())
    assert not torch.equal(states["0.2.running_mean"], net.state_dict()["0.2.running_mean"])


def test_losses_get_float32_while_activations_are_bf16() -> None:
    body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    model = Model(nn.Sequential(body, nn.Linear(8, 3)), bf16=True)
    x = torch.randn(5, 4)
    assert model.block(model.initial, x, 0, train=True).dtype == torch.bfloat16
    assert [FrozenModel(model, model.initial, x).at(cut).dtype for cut in (0, 1, 2)] == [torch.float32] * 3
