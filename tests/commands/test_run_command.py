"""The command line: results on standard output, everything else on standard error, and clear refusals."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import unskew as us
from runner import toys
from runner.conftest import Command

KEYS = ["run", "method", "best", "best_round", "final", "bytes_up", "bytes_down", "seconds"]


def test_json_is_one_line_and_the_only_output(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "--out", tmp_path / "run", "--json")
    assert result.code == 0
    assert result.out.count("\n") == 1
    answer = json.loads(result.out)
    assert list(answer) == KEYS
    assert (answer["run"], answer["method"]) == (str(tmp_path / "run"), "fedavg")
    assert {key: answer[key] for key in KEYS} == {key: toys.manifest(tmp_path / "run")["finished"][key] for key in KEYS}


def test_everything_else_goes_to_standard_error(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "--out", tmp_path / "run")
    for word in ("method", "data", "partition", "model", "engine", "round 1/2", "round 2/2"):
        assert word in result.err
        assert word not in result.out.split("saved to")[0]
    assert result.out.startswith("fedavg: best ")
    assert str(tmp_path / "run") in result.out


def test_mean_of_last_ten_is_printed_for_runs_of_at_least_ten_rounds(
    recipe: Path, tmp_path: Path, unskew: Command
) -> None:
    for rounds in (2, 10):
        result = unskew("run", recipe, f"rounds={rounds}", "--out", tmp_path / str(rounds))
        assert ("last ten" in result.out) == (rounds == 10)


def test_the_default_folder_is_named_by_recipe_method_seed_and_hash(
    recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert unskew("run", recipe, "method=fedavg+prox", "seed=4").code == 0
    assert unskew("run", recipe, "seed=4").code == 0
    names = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert [re.sub(r"[0-9a-f]{8}$", "HASH", name) for name in names] == ["tiny-fedavg-s4-HASH", "tiny-fedprox-s4-HASH"]
    assert names[0] == f"tiny-fedavg-s4-{us.load_recipe(str(recipe), ['seed=4'])[1].identity()}"
    again = unskew("run", recipe, "seed=4")
    assert again.code == 2
    assert "--resume" in again.err


def test_quick_runs_from_another_directory_in_a_real_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unskew.cli", "run", "quick", "rounds=1", "local.epochs=1", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert list(answer) == KEYS
    assert re.fullmatch(r"runs/quick-fedavg-s0-[0-9a-f]{8}", answer["run"])
    assert (tmp_path / answer["run"] / "model.safetensors").is_file()


def test_ctrl_c_saves_and_suggests_resume(
    recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("unskew.server.federation.Federation.run_round", interrupt)
    result = unskew("run", recipe, "--out", tmp_path / "run", "--json")
    assert (result.code, result.out) == (130, "")
    assert "--resume" in result.err.splitlines()[-1]
    assert toys.manifest(tmp_path / "run")["round"] == 0


def test_bugs_keep_their_traceback(
    recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("unskew.server.federation.Federation.run_round", fail)
    with pytest.raises(ZeroDivisionError):
        unskew("run", recipe, "--out", tmp_path / "run")


def test_help_names_the_options(unskew: Command) -> None:
    result = unskew("run", "--help")
    assert result.code == 0
    for word in ("--out", "--resume", "--json", "--data-dir", "KEY=VALUE"):
        assert word in result.out


def refused(result: object, *words: str) -> None:
    """Exit code 2, nothing on standard output, one message with these words and no traceback."""
    assert (result.code, result.out) == (2, "")  # type: ignore[attr-defined]
    err = result.err  # type: ignore[attr-defined]
    assert err.count("unskew: ") == 1
    assert err.startswith("unskew: ")
    assert "Traceback" not in err
    for word in words:
        assert word in err, word


MISTAKES = {
    "unknown key": (["round=3"], ["unknown key round", "did you mean rounds?", "participation"]),
    "unknown key inside": (["local.epoch=3"], ["unknown key local.epoch", "did you mean local.epochs?", "momentum"]),
    "unknown key of a partition": (["partition.client=3"], ["partition.client", "did you mean partition.clients?"]),
    "unknown key of data": (["data.augment.crops=3"], ["data.augment.crops", "did you mean data.augment.crop?"]),
    "unknown section": (["lokal.lr=3"], ["lokal", "did you mean local?"]),
    "unknown device": (["device=gpu"], ["device", "expected auto, cpu, cuda, or cuda:N", "'gpu'"]),
    "unknown choice of a part": (
        ["method=fedmix", "method.mix.variant=naiv"],
        ["method.mix.variant", "did you mean naive?"],
    ),
    "wrong type": (["rounds=many"], ["rounds", "integer", "'many'"]),
    "wrong type inside": (["local.batch=1.5"], ["local.batch", "integer", "1.5"]),
    "no value": (["rounds="], ["rounds", "None"]),
    "section as a number": (["local=3"], ["local", "3"]),
    "method as a number": (["method=5"], ["method", "5"]),
    "method without a name": (["method="], ["method", "None"]),
    "method as an empty list": (["method=[]"], ["method", "fedavg"]),
    "zero rounds": (["rounds=0"], ["rounds", "greater than or equal to 1", "0"]),
    "negative rounds": (["rounds=-3"], ["rounds", "greater than or equal to 1", "-3"]),
    "no participation": (["participation=0"], ["participation", "greater than 0", "0"]),
    "stop without a rule": (["stop={metric: test/loss}"], ["stop", "patience", "target"]),
    "stop by an unknown metric": (
        ["stop={metric: train/loss, patience: 1}"],
        ["stop.metric", "such as validation"],
    ),
    "stop without patience": (["stop.patience=0"], ["stop.patience", "greater than or equal to 1"]),
    "unknown key of stop": (["stop.patient=3"], ["stop.patient", "did you mean stop.patience?"]),
    "unknown key of track": (["track={name: wandb, projekt: a}"], ["projekt", "did you mean track.0.project?"]),
    "negative rate": (["local.lr=-1"], ["local.lr", "greater than 0", "-1"]),
    "endless rate": (["local.lr=.inf"], ["local.lr", "inf"]),
    "not a number": (["local.lr=.nan"], ["local.lr", "nan"]),
    "too much participation": (["participation=2"], ["participation", "less than or equal to 1"]),
    "nesterov without momentum": (["local.nesterov=true", "local.momentum=0"], ["local", "momentum above 0"]),
    "impossible betas": (["local.optimiser=adam", "local.betas=[2,2]"], ["local.betas", "2"]),
    "unknown optimiser": (
        ["local.optimiser=sdg"],
        ["local.optimiser", "'sdg'", "sgd, adam, adamw", "mean sgd?"],
    ),
    "unknown engine": (["engine=stack"], ["engine", "'stack'", "auto, loop, stacked, plain", "did you mean stacked?"]),
    "unknown partition": (
        ["partition=shard"],
        ["partition: found 'shard'; did you mean shards? Expected one of iid,"],
    ),
    "partition without a name": (
        ["partition={clients: 3}"],
        ["partition: found {'clients': 3}; expected a name, one of iid, dirichlet"],
    ),
    "partition as a number": (["partition=3"], ["partition: found 3; expected a name, one of iid"]),
    "partition with a number for a name": (["partition={name: 3}"], ["partition: found 3; expected one of iid"]),
    "unknown kind of draws": (
        ["partition=classes", "partition.per_client=1", "partition.draws=count"],
        ["partition.draws", "'count'; did you mean counts?"],
    ),
    "unknown schedule": (
        ["local.schedule=cosin"],
        ["local.schedule: found 'cosin'; did you mean cosine? Expected one of"],
    ),
    "unknown precision": (["precision=bf61"], ["precision", "float32, tf32", "'bf61'; did you mean bf16?"]),
    "unknown tracker": (["track=mlflw"], ["track.0.name", "'mlflw'; did you mean mlflow?"]),
    "record of unknown clients": (["record.clients=al"], ["record.clients: found 'al'; expected all"]),
    "unknown method": (["method=fedavgg"], ["method", "'fedavgg'", "did you mean fedavg?", "scaffold"]),
    "unknown part": (["method=fedavg+proxx"], ["method", "'proxx'", "did you mean prox?"]),
    "unknown part in a setting": (["method.proks.mu=1"], ["method", "proks"]),
    "part that is not there": (["method.prox.mu=1"], ["method.prox.mu", "ce", "average", "+prox"]),
    "unknown setting": (["method=fedprox", "method.prox.my=1"], ["method.prox", "found 'my'; expected mu"]),
    "impossible setting": (["method=fedprox", "method.prox.mu=-1"], ["method.prox.mu", "greater than or equal to 0"]),
    "setting of a wrong type": (["method=fedprox", "method.prox.mu=x"], ["method.prox.mu", "number", "'x'"]),
    "setting without a field": (["method=fedprox", "method.prox=1"], ["method.prox", "PART.FIELD"]),
    "no owner": (["method=ce"], ["method", "merges the model", "fedavg"]),
    "unknown model": (["model=mpl"], ["model", "'mpl'", "did you mean mlp?", "cnn"]),
    "scaffold with adam": (["method=scaffold", "local.optimiser=adam"], ["scaffold", "local.optimiser", "sgd"]),
    "no equals sign": (["rounds"], ["key=value", "'rounds'"]),
    "no key": (["=3"], ["key=value", "'=3'"]),
    "broken value": (["rounds=[1"], ["rounds", "'[1'", "YAML"]),
    "absent client": (["absence=[{clients: [99], rounds: [1, 2]}]"], ["absence", "99", "0..2"]),
    "absence that ends before it begins": (["absence=[{clients: [0], rounds: [3, 2]}]"], ["absence", "[3, 2]"]),
    "absence without rounds": (["absence=[{clients: [0]}]"], ["absence", "rounds"]),
    "record of a client that is not there": (["record={rounds: [1], clients: [99]}"], ["record", "99"]),
    "seed that the partition cannot take": ([f"seed={2**40}"], ["seed", str(2**40)]),
}


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_refused_before_data_are_loaded(
    mistake: str, recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    overrides, words = MISTAKES[mistake]
    refused(unskew("run", recipe, *overrides), *words)
    assert not list(tmp_path.glob("runs/*"))


@pytest.mark.usefixtures("no_data")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu_is_refused(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    refused(unskew("run", recipe, "device=cuda", "--out", tmp_path / "run"), "device", "cuda", "device=cpu")


@pytest.mark.usefixtures("no_data")
def test_all_mistakes_are_reported_at_once(recipe: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "rounds=0", "local.epoch=3", "seed=-1")
    refused(result, "rounds", "local.epoch", "seed")


@pytest.mark.parametrize(("name", "words"), [("digit", ["did you mean digits?", "cifar10"]), ("no.npz", ["no.npz"])])
def test_unknown_data_are_refused_by_key(
    name: str, words: list[str], recipe: Path, tmp_path: Path, unskew: Command
) -> None:
    result = unskew("run", recipe, f"data={name}", "--out", tmp_path / "run")
    refused(result, *words)
    assert re.search(r"\bdata(\.name)?:", result.err), "the key is not named"


def test_missing_data_are_refused_by_folder(recipe: Path, tmp_path: Path, unskew: Command) -> None:
    result = unskew("run", recipe, "data=cifar10", "--out", tmp_path / "run", "--data-dir", tmp_path / "nowhere")
    refused(result, "cifar10", str(tmp_path / "nowhere"), "UNSKEW_DATA", "--data-dir")


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize(("name", "words"), [("quik", ["'quik'", "did you mean quick?"]), ("a/b.yaml", ["a/b.yaml"])])
def test_unknown_recipe_is_refused(name: str, words: list[str], unskew: Command) -> None:
    refused(unskew("run", name), "recipe", "quick", *words)


BROKEN = {
    "syntax": ("rounds: [1, 2\nseed: 3", ["broken.yaml, line 2, column 5: invalid YAML: expected ',' or ']'"]),
    "tabulator": ("rounds: 3\n\tseed: 3", ["broken.yaml, line 2, column 1: invalid YAML: found character"]),
    "list": ("- rounds\n- 3", ["expected keys and values", "list"]),
    "number as key": ("3: 4", ["expected keys and values"]),
    "missing parent": ("extends: absent.yaml", ["absent.yaml"]),
    "unknown key": ("extends: quick\nrouds: 3", ["rouds", "did you mean rounds?"]),
    "itself": ("extends: broken.yaml", ["extends itself"]),
    "no text": (b"\xff\xfe\x00", ["invalid YAML"]),
    "tag": ("rounds: !!python/object/apply:os.getpid []", ["invalid YAML"]),
}


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("kind", BROKEN)
def test_broken_recipe_is_refused_by_file(kind: str, tmp_path: Path, unskew: Command) -> None:
    text, words = BROKEN[kind]
    path = tmp_path / "broken.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    refused(unskew("run", path), str(path), *words)


@pytest.mark.usefixtures("no_data")
@pytest.mark.parametrize("back", ["one.yaml", "./one.yaml", "../here/one.yaml"])
def test_a_recipe_that_extends_itself_is_refused(back: str, tmp_path: Path, unskew: Command) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "one.yaml").write_text("extends: two.yaml")
    (folder / "two.yaml").write_text(f"extends: {back}")
    refused(unskew("run", folder / "one.yaml"), "one.yaml", "two.yaml", "extends itself")


@pytest.mark.parametrize("words", [["run"], ["run", "quick", "--nonsense"], ["nonsense"]])
def test_wrong_usage_prints_the_usage(words: list[str], unskew: Command) -> None:
    result = unskew(*words)
    assert result.code == 2
    assert "Usage" in result.err
    assert "Traceback" not in result.err


def test_refused_run_leaves_no_folder(
    recipe: Path, tmp_path: Path, unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake that is found late must not fill `runs` with empty folders."""
    monkeypatch.chdir(tmp_path)
    assert unskew("run", recipe, "data=nonsense").code == 2
    assert not list(tmp_path.glob("runs/*"))
