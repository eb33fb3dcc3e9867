"""The files of a run, one by one."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import safetensors.torch
import torch
import yaml

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew import models
from unskew.results.run_tables import METRICS, summarise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished scaffold run with a checkpoint after every round and two recorded messages."""
    path = tmp_path_factory.mktemp("folder") / "run"
    record = {"rounds": [2], "clients": [0, 1]}
    toys.run(path, method="scaffold", checkpoint=toys.EAGER, record=record, data=toys.dataset())
    return path


def test_folder_has_exactly_these_files(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()} - {".lock", ".unskew.json"}
    files = {"config.yaml", "about.json", "environment.json", "model.safetensors", "checkpoint", "messages"}
    assert names == files | {f"{table}.parquet" for table in ("metrics", "times", "ledger", "clients")}


def test_tables_have_fixed_columns(folder: Path) -> None:
    assert list(toys.rows_of(folder)) == ["run", "method", "seed", "round", "who", "split", "metric", "value"]
    assert list(toys.rows_of(folder, "times")) == ["round", "what", "seconds"]
    ledger = ["round", "phase", "client", "direction", "part", "artefact", "kind", "bytes"]
    assert list(toys.rows_of(folder, "ledger")) == ledger
    assert list(toys.rows_of(folder, "clients")) == ["client", "class", "rows"]


def test_metrics_of_every_round(folder: Path) -> None:
    rows = toys.rows_of(folder)
    accuracy = rows[(rows["who"] == "server") & (rows["metric"] == "accuracy")]
    assert accuracy["round"].tolist() == [0, 1, 2, 3]
    assert set(rows["method"]) == {"scaffold"}
    assert rows["run"].nunique() == 1
    predicted = rows[rows["metric"].str.startswith("predicted/")].groupby("round")["value"].sum()
    assert set(predicted) == {len(toys.dataset().test)}


def test_accuracy_by_class_adds_up(folder: Path) -> None:
    rows, test = toys.rows_of(folder), toys.dataset().test.y
    last = rows[(rows["round"] == 3) & (rows["who"] == "server")].set_index("metric")["value"]
    by_class = sum(last[f"accuracy/{c}"] * int((test == c).sum()) for c in range(toys.CLASSES)) / len(test)
    assert by_class == pytest.approx(last["accuracy"])


def test_times_of_every_round(folder: Path) -> None:
    times = toys.rows_of(folder, "times")
    assert times["round"].tolist() == [1, 1, 2, 2, 3, 3]
    assert (times["seconds"] >= 0).all()


def test_model_reproduces_the_final_accuracy(folder: Path) -> None:
    state, data = safetensors.torch.load_file(folder / "model.safetensors"), toys.dataset()
    net = models.build("mlp", data.shape, len(data.classes), seed=5)
    right = (net.run(state, data.prepare(data.test.x)).argmax(1) == data.test.y).sum()
    assert 100 * int(right) / len(data.test) == toys.manifest(folder)["finished"]["final"]
    assert {name: t.shape for name, t in state.items()} == {name: t.shape for name, t in net.initial.items()}


def test_summary_is_read_from_the_rows(folder: Path) -> None:
    rows, summary = toys.rows_of(folder), toys.manifest(folder)["finished"]
    accuracy = rows[(rows["who"] == "server") & (rows["metric"] == "accuracy") & (rows["round"] > 0)]
    assert summary["best"] == accuracy["value"].max()
    assert summary["final"] == accuracy["value"].iloc[-1]
    assert summary["best_round"] == accuracy["round"].iloc[accuracy["value"].argmax()]
    sent = toys.rows_of(folder, "ledger").groupby("direction")["bytes"].sum()
    assert (summary["bytes_up"], summary["bytes_down"]) == (sent["up"], sent["down"])
    assert summary["seconds"] == pytest.approx(toys.rows_of(folder, "times")["seconds"].sum())


def test_rows_of_all_clients_add_up_to_the_dataset(folder: Path) -> None:
    rows, y = toys.rows_of(folder, "clients"), toys.dataset().train.y
    assert rows["rows"].sum() == len(y)
    assert rows.groupby("class")["rows"].sum().tolist() == torch.bincount(y).tolist()
    assert sorted(set(rows["client"])) == [0, 1, 2]


def test_environment_is_saved(folder: Path) -> None:
    environment = json.loads((folder / "environment.json").read_text())
    keys = {"unskew", "commit", "python", "torch", "numpy", "device", "device_type", "engine", "workers", "system"}
    assert keys <= environment.keys()
    assert (environment["engine"], environment["workers"], environment["device_type"]) == ("loop", 1, "cpu")
    assert environment["torch"] == torch.__version__


def test_checkpoint_has_exactly_the_files_in_the_manifest(folder: Path) -> None:
    manifest = toys.manifest(folder)
    named = manifest["files"] | {entry["file"]: entry["hash"] for entry in manifest["clients"].values()}
    for name, digest in named.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name
    existing = {str(p.relative_to(folder)) for p in (folder / "checkpoint").rglob("*") if p.is_file()}
    assert existing == {*named, "checkpoint/manifest.json", "checkpoint/initial.safetensors"}
    assert manifest["clients"].keys() == {"0", "1", "2"}


def test_every_file_has_the_format_of_its_suffix(folder: Path) -> None:
    """So no file is a pickle or only partly written."""
    for path in [p for p in folder.rglob("*") if p.is_file() and p.name != ".lock"]:
        data = path.read_bytes()
        if path.suffix == ".parquet":
            assert data[:4] == data[-4:] == b"PAR1"
        elif path.suffix == ".safetensors":
            assert safetensors.torch.load(data)
        elif path.suffix == ".json":
            assert json.loads(data)
        else:
            assert path.name == "config.yaml"
            assert yaml.safe_load(data)
    assert (folder / ".lock").read_bytes() == b""


def test_only_the_recorded_messages(folder: Path) -> None:
    stems = [f"000002-{sender}" for sender in ("0", "1", "down")]
    assert sorted(p.name for p in (folder / "messages").iterdir()) == [
        f"{stem}{suffix}" for stem in stems for suffix in (".json", ".safetensors")
    ]


def test_recorded_messages_are_the_sent_ones(tmp_path: Path) -> None:
    """The weighted mean of all recorded weights is the model, and every artefact of every part is recorded."""
    toys.run(tmp_path, method="fedavg+toy-two", rounds=2, record={"rounds": [2]})
    sent = [safetensors.torch.load_file(tmp_path / "messages" / f"000002-{k}.safetensors") for k in range(3)]
    model = safetensors.torch.load_file(tmp_path / "model.safetensors")
    counts = toys.rows_of(tmp_path, "clients").pivot(index="client", columns="class", values="rows").to_numpy()
    for name, tensor in model.items():
        total = sum(n * s[f"average/weights/{name}"].double() for n, s in zip(counts.sum(1), sent))
        assert torch.equal((total * (1.0 / counts.sum())).float(), tensor), name
    for k, message in enumerate(sent):
        assert {name for name in message if name.startswith("toy-two")} == {"toy-two/steps", "toy-two/counts"}
        assert message["toy-two/counts"].tolist() == counts[k].tolist()
        assert message["toy-two/steps"] == 2


def test_ledger_has_the_size_of_a_recorded_message(folder: Path) -> None:
    ledger = toys.rows_of(folder, "ledger")
    selected = ledger[(ledger["round"] == 2) & (ledger["client"] == 1) & (ledger["direction"] == "up")]
    tensors = safetensors.torch.load_file(folder / "messages" / "000002-1.safetensors").values()
    assert sum(t.numel() * t.element_size() for t in tensors) == selected["bytes"].sum()


@pytest.mark.parametrize(
    "method", [*toys.shipped(), "fedavg+prox+moon", ["fedprox", {"prox": {"mu": 0.3}}], {"fedavgm": {"beta": 0.1}}]
)
def test_config_reads_back_as_the_same_experiment(method: object, tmp_path: Path) -> None:
    more = {"absence": [{"clients": [0], "rounds": [2, 3]}], "record": {"rounds": [1]}, "rounds": 1}
    experiment = us.Experiment(**toys.settings(method=method, **more))
    us.run(experiment, out=tmp_path, data=toys.dataset())
    again = us.Experiment(**yaml.safe_load((tmp_path / "config.yaml").read_text()))
    # A dataset passed from Python is saved under its own name.
    named = experiment.model_copy(update={"data": again.data})
    assert again.data.name == toys.dataset().name
    assert again == named
    assert again.identity() == named.identity()
    assert again.label == experiment.label


def test_config_has_every_key(folder: Path) -> None:
    raw = yaml.safe_load((folder / "config.yaml").read_text())
    assert raw.keys() == us.Experiment.model_fields.keys()
    assert raw["local"].keys() == type(us.Experiment().local).model_fields.keys()


def test_config_runs_again(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    assert unskew("run", recipe, "method=fedprox", "method.prox.mu=0.5", "--out", tmp_path / "one").code == 0
    assert unskew("run", tmp_path / "one" / "config.yaml", "--out", tmp_path / "two").code == 0
    one, two = (toys.rows_of(tmp_path / name).drop(columns="run") for name in ("one", "two"))
    assert one.equals(two)
    models_of = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert models_of[0] == models_of[1]


@pytest.mark.parametrize(
    "name", ["config.yaml", "about.json", "metrics.parquet", "model.safetensors", "clients.parquet"]
)
def test_a_finished_run_that_was_changed_is_refused_by_file(name: str, folder: Path, tmp_path: Path) -> None:
    """Half a YAML file is still valid YAML: only the hash reveals the damage."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / name).write_bytes((copy / name).read_bytes()[: (copy / name).stat().st_size // 2])
    with pytest.raises(us.UserError, match=name) as error:
        us.load(copy)
    assert "away to start this run again" in str(error.value)


def test_a_summary_of_another_version_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    path = copy / "checkpoint" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["finished"]["novelty"] = 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(us.UserError, match="novelty"):
        us.load(copy)


def test_mean_last10_counts_rounds_not_evaluations() -> None:
    values = [(r, float(r)) for r in range(3, 37, 3)]
    rows = [("x", "m", 0, r, "server", "test", "accuracy", v) for r, v in values]
    result = summarise("x", "m", pd.DataFrame(rows, columns=list(METRICS)), 0, 0, 0.0)
    assert result.mean_last10 == pytest.approx((27 + 30 + 33 + 36) / 4)
