"""`us.load(run).model`: an ordinary module with the accuracy that the run recorded, and programs exported from it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew.models.seeded_dropout import SeededDropout
from unskew.results.model_export import export


def images() -> us.Dataset:
    """60 raw images of 3 classes of increasing brightness, standardised by channel."""
    y = np.arange(60) % 3
    x = np.random.default_rng(0).integers(0, 120, (60, 8, 8)) + 40 * y[:, None, None]
    return us.from_arrays(x.astype("uint8"), y, mean=[0.3], std=[0.2])


def score(model: nn.Module, run: us.LoadedRun, data: us.Dataset) -> float:
    """Accuracy in percent, computed in plain PyTorch."""
    with torch.no_grad():
        right = model(run.prepare(data.test.x)).argmax(1) == data.test.y
    return 100.0 * float(right.sum()) / len(right)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_model_scores_the_final_accuracy_of_the_run(model: str, precision: str, tmp_path: Path) -> None:
    toys.run(tmp_path, data=images(), model=model, precision=precision)
    run = us.load(tmp_path)
    assert not run.model.training
    assert score(run.model, run, images()) == run.summary.final
    assert run.summary.final > 40


def test_model_of_a_command_line_run_scores_its_final_accuracy(tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", "quick", "rounds=3", "local.epochs=1", "--out", tmp_path / "run").code == 0
    run = us.load(tmp_path / "run")
    from unskew.data import load as load_data

    assert score(run.model, run, load_data("digits")) == run.summary.final


@pytest.mark.parametrize("batchnorm", ["average", "frozen", "group"])
def test_batchnorm_policies_score_the_final_accuracy(batchnorm: str, tmp_path: Path) -> None:
    toys.run(tmp_path, data=images(), rounds=2, model={"name": "resnet8", "batchnorm": batchnorm})
    run = us.load(tmp_path)
    assert score(run.model, run, images()) == run.summary.final
    kinds = {type(module) for module in run.model.modules()}
    assert (nn.GroupNorm in kinds, nn.BatchNorm2d in kinds) == (batchnorm == "group", batchnorm != "group")


def test_local_batchnorm_scores_the_mean_of_the_clients_models(tmp_path: Path) -> None:
    toys.run(tmp_path, data=images(), rounds=2, model={"name": "resnet8", "batchnorm": "local"})
    run = us.load(tmp_path)
    each = [score(run.model_of(k), run, images()) for k in range(toys.CLIENTS)]
    assert np.mean(each) == pytest.approx(run.summary.final)
    with pytest.warns(UserWarning, match="untrained"):
        server = run.model
    trained, untrained = run.model_of(0).state_dict(), server.state_dict()
    other = {name for name, tensor in trained.items() if not torch.equal(tensor, untrained[name])}
    assert {name.rpartition(".")[0] for name in other} <= norms(server)
    with pytest.raises(us.UserError, match=r"expected one of the trained clients 0, 1, 2, found 9"):
        run.model_of(9)


def norms(model: nn.Module) -> set[str]:
    return {name for name, module in model.named_modules() if isinstance(module, nn.BatchNorm2d)}


def own_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(toys.WIDTH, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, toys.CLASSES))


def run_own_model(out: Path) -> us.Run:
    return us.run(us.Experiment(**toys.settings()), out=out, data=toys.dataset(), model=own_model())


def test_custom_model_is_loaded_and_not_changed(tmp_path: Path) -> None:
    run_own_model(tmp_path)
    network = own_model()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    run = us.load(tmp_path, model=network)
    assert score(run.model, run, toys.dataset()) == run.summary.final
    assert not any(isinstance(module, SeededDropout) for module in run.model.modules())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_custom_model_must_be_passed_to_load(tmp_path: Path) -> None:
    run_own_model(tmp_path)
    with pytest.raises(us.UserError, match=r"us\.load\(folder, model=network\)"):
        us.load(tmp_path).model  # noqa: B018
    narrow = nn.Sequential(nn.Linear(toys.WIDTH, 4), nn.ReLU(), nn.Identity(), nn.Linear(4, toys.CLASSES))
    with pytest.raises(us.UserError, match=r"expected 0\.weight of shape \[8, 6\] in the model, found \[4, 6\]"):
        us.load(tmp_path, model=narrow).model  # noqa: B018


def test_building_a_model_does_not_change_the_random_state(tmp_path: Path) -> None:
    toys.run(tmp_path)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    assert us.load(tmp_path).model
    assert torch.equal(torch.rand(1), expected)


def test_part_that_changes_rows_in_evaluation_is_named(tmp_path: Path) -> None:
    toys.run(tmp_path, method="fedavg+toy-batch")
    with pytest.warns(UserWarning, match="toy-batch"):
        us.load(tmp_path).model  # noqa: B018


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    toys.run(tmp_path)
    with pytest.raises(us.UserError, match=r"expected rows of shape \[B, 6\], found \[2, 7\]"):
        us.load(tmp_path).prepare(torch.zeros(2, 7))


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    toys.run(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(us.UserError, match=r"model\.safetensors is missing or was changed"):
        us.load(tmp_path).model  # noqa: B018


@pytest.mark.parametrize("model", ["cnn", {"name": "resnet8", "batchnorm": "group"}])
def test_exported_program_gives_the_same_logits(model: Any, tmp_path: Path, unskew: Command) -> None:
    toys.run(tmp_path, data=images(), rounds=1, model=model)
    result = unskew("export", tmp_path)
    assert (result.code, result.out) == (0, f"model saved to {tmp_path / 'model.pt2'}\n")
    about = {"about.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=about).module()
    run = us.load(tmp_path)
    for rows in (1, 5, 12):
        x = run.prepare(images().test.x[:rows])
        torch.testing.assert_close(program(x), run.model(x), rtol=1e-5, atol=1e-6)
    assert json.loads(about["about.json"])["mean"] == [0.3]


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript")), reason="the extra onnx is not installed"
)
def test_exported_onnx_gives_the_same_logits(tmp_path: Path, unskew: Command) -> None:
    import onnx
    from onnx.reference import ReferenceEvaluator

    toys.run(tmp_path, data=images(), rounds=1, model="cnn")
    result = unskew("export", tmp_path, "--format", "onnx", "--out", tmp_path / "net.onnx")
    assert (result.code, result.out) == (0, f"model saved to {tmp_path / 'net.onnx'}\n")
    program, run = onnx.load(str(tmp_path / "net.onnx")), us.load(tmp_path)
    for rows in (1, 5, 12):
        x = run.prepare(images().test.x[:rows])
        (logits,) = ReferenceEvaluator(program).run(None, {"rows": x.numpy()})
        np.testing.assert_allclose(logits, run.model(x).detach().numpy(), rtol=1e-4, atol=1e-5)
    about = {prop.key: prop.value for prop in program.metadata_props}["about.json"]
    assert json.loads(about)["std"] == [0.2]


def test_onnx_without_its_package_names_the_extra_to_install(
    tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    toys.run(tmp_path, rounds=1)
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = unskew("export", tmp_path, "--format", "onnx")
    assert result.code == 2
    assert "pip install 'unskew[onnx]'" in result.err
    assert not list(tmp_path.glob("model.onnx*"))


def test_export_refusals_name_the_problem(tmp_path: Path, unskew: Command) -> None:
    toys.run(tmp_path / "run", rounds=1)
    result = unskew("export", tmp_path)
    assert result.code == 2
    assert "expected the folder of a run" in result.err
    result = unskew("export", tmp_path / "run", "--out", tmp_path / "nowhere" / "net.pt2")
    assert result.code == 2
    assert "expected an existing folder" in result.err


class DataDependent(nn.Module):
    """A layer whose control flow depends on tensor values."""

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        return h if h.sum() > 0 else 2 * h


def test_network_that_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    run_own_model(tmp_path)
    layers = list(own_model())
    run = us.load(tmp_path, model=nn.Sequential(*layers[:2], DataDependent(), layers[3]))
    with pytest.raises(us.UserError, match=r"model custom: expected a network that torch\.export can follow"):
        export(run)
    assert not (tmp_path / "model.pt2").exists()


def test_export_from_python_takes_a_custom_model(tmp_path: Path) -> None:
    run_own_model(tmp_path)
    file = export(us.load(tmp_path, model=own_model()), out=tmp_path / "own.pt2")
    assert file.stat().st_size > 0
    assert not list(tmp_path.glob("*.tmp"))
