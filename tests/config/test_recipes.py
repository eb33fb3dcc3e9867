"""Recipes: files that build on others, dotted overrides, short forms."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

import unskew as us
from unskew.base.errors import UserError
from unskew.config import recipe

FILES = [path.name for path in resources.files("unskew.recipes").iterdir()]
SHIPPED = sorted(name.removesuffix(".yaml") for name in FILES if name.endswith(".yaml"))


def load(text: str, tmp_path: Path, *overrides: str) -> us.Experiment:
    (tmp_path / "own.yaml").write_text(text)
    name, experiment = us.load_recipe(str(tmp_path / "own.yaml"), list(overrides))
    assert name == "own"
    return experiment


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_recipe_validates(name: str) -> None:
    short_name, experiment = us.load_recipe(name)
    assert short_name == name
    assert us.Experiment(**experiment.resolved()) == experiment


def test_quick_is_shipped() -> None:
    assert "quick" in SHIPPED
    assert us.load_recipe("quick")[1].partition.clients == 20


def test_empty_recipe_is_the_defaults(tmp_path: Path) -> None:
    assert load("", tmp_path) == us.Experiment()


def test_a_duplicate_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(us.UserError, match="duplicate key rounds"):
        load("rounds: 2\nseed: 1\nrounds: 3", tmp_path)
    with pytest.raises(us.UserError, match="duplicate key lr"):
        load("local: {lr: 0.1, lr: 0.2}", tmp_path)


def test_extends_a_shipped_recipe(tmp_path: Path) -> None:
    experiment, quick = load("extends: quick\nrounds: 3\nlocal: {lr: 0.5}", tmp_path), us.load_recipe("quick")[1]
    assert (experiment.rounds, experiment.local.lr) == (3, 0.5)
    assert (experiment.local.epochs, experiment.local.batch, experiment.partition) == (5, 16, quick.partition)


def test_extends_a_path_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text("extends: quick\nseed: 7\nrounds: 9")
    (tmp_path / "deep" / "own.yaml").write_text("extends: ../base.yaml\nrounds: 2")
    monkeypatch.chdir("/")
    experiment = us.load_recipe(str(tmp_path / "deep" / "own.yaml"))[1]
    assert (experiment.seed, experiment.rounds, experiment.participation) == (7, 2, 0.5)


def test_a_local_recipe_may_have_the_name_of_a_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "quick.yaml").write_text("extends: quick\nrounds: 2")
    assert us.load_recipe(str(tmp_path / "quick.yaml"))[1].rounds == 2


def test_later_override_wins(tmp_path: Path) -> None:
    assert load("rounds: 5", tmp_path, "rounds=6", "rounds=7").rounds == 7


def test_dotted_overrides(tmp_path: Path) -> None:
    experiment = load("extends: quick", tmp_path, "local.epochs=1", "data.augment.flip=true", "checkpoint.seconds=0")
    assert (experiment.local.epochs, experiment.data.augment.flip, experiment.checkpoint.seconds) == (1, True, 0)
    assert (experiment.local.lr, experiment.data.name) == (0.03, "digits")


def test_override_in_a_section_that_the_recipe_does_not_set(tmp_path: Path) -> None:
    """The schedule is exponential by default, so its rate can be set."""
    assert load("", tmp_path, "local.schedule.rate=0.5").local.schedule.rate == 0.5


def test_override_of_the_default_partition(tmp_path: Path) -> None:
    """The default is ten clients with equal shares."""
    assert (
        load("", tmp_path, "partition.clients=4").partition
        == us.Experiment(partition={"name": "iid", "clients": 4}).partition
    )


def test_a_setting_of_a_part_is_overridden(tmp_path: Path) -> None:
    experiment = load("method: fedprox", tmp_path, "method.prox.mu=0.1")
    assert {"prox": {"mu": 0.1}} in experiment.method
    assert experiment.label == "fedprox"
    assert experiment == us.Experiment(method=["fedprox", {"prox": {"mu": 0.1}}])


def test_settings_of_a_part_are_overridden_one_by_one(tmp_path: Path) -> None:
    experiment = load("method: fedavg+prox+moon", tmp_path, "method.prox.mu=1e-3", "method.moon.tau=0.9")
    assert {"prox": {"mu": 0.001}} in experiment.method
    assert {"moon": {"mu": 0.1, "tau": 0.9}} in experiment.method


def test_settings_under_the_name_of_the_method(tmp_path: Path) -> None:
    assert load("method: fedprox", tmp_path, "method.fedprox.mu=0.1") == us.Experiment(
        method=[{"fedprox": {"mu": 0.1}}]
    )


def test_method_override_replaces_the_method(tmp_path: Path) -> None:
    experiment = load("method: [fedprox, {prox: {mu: 0.3}}]", tmp_path, "method=moon")
    assert (experiment.label, experiment) == ("moon", us.Experiment(method="moon"))


def test_another_partition_keeps_clients_and_seed(tmp_path: Path) -> None:
    text = "partition: {name: shards, clients: 7, per_client: 2, seed: 11}"
    partition = load(text, tmp_path, "partition.name=dirichlet", "partition.alpha=0.5").partition
    assert (partition.name, partition.clients, partition.seed, partition.alpha) == ("dirichlet", 7, 11, 0.5)


def test_another_partition_in_a_child_keeps_clients_and_seed(tmp_path: Path) -> None:
    partition = load("extends: fedlmd-shards\npartition: iid", tmp_path).partition
    assert (partition.name, partition.clients, partition.seed) == ("iid", 100, 19940817)


def test_same_partition_keeps_all_its_keys(tmp_path: Path) -> None:
    partition = load("extends: fedlmd-shards", tmp_path, "partition.per_client=5").partition
    assert (partition.per_client, partition.draws, partition.clients) == (5, "released", 100)


def test_short_forms(tmp_path: Path) -> None:
    text = "data: mnist\nmodel: cnn\nengine: loop\nmethod: scaffold\nlocal: {schedule: cosine}"
    experiment = load(text, tmp_path)
    names = (
        experiment.data.name,
        experiment.model.name,
        experiment.engine.name,
        experiment.label,
        experiment.local.schedule.name,
    )
    assert names == ("mnist", "cnn", "loop", "scaffold", "cosine")


def test_short_form_of_a_partition_is_the_same_in_yaml_and_in_python(tmp_path: Path) -> None:
    assert load("partition: iid", tmp_path).partition == us.Experiment(partition="iid").partition


def test_short_form_of_groups_is_one_client_per_group() -> None:
    assert us.Experiment(partition="group").partition.clients is None


def test_short_form_as_override(tmp_path: Path) -> None:
    experiment = load("extends: fedlmd-shards", tmp_path, "data=digits", "engine=stacked", "local.schedule=constant")
    assert (experiment.data.name, experiment.data.augment.crop) == ("digits", 0)
    assert (experiment.engine.name, experiment.local.schedule.name) == ("stacked", "constant")


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001"])
def test_numbers_in_scientific_notation(text: str, tmp_path: Path) -> None:
    assert load(f"local: {{lr: {text}}}", tmp_path).local.lr == 0.001
    assert load("", tmp_path, f"local.lr={text}").local.lr == 0.001


def test_partition_as_override_keeps_the_clients_of_the_recipe(tmp_path: Path) -> None:
    """Like `partition: iid` in a recipe that extends another."""
    assert load("extends: fedlmd-shards", tmp_path, "partition=iid").partition.clients == 100


@pytest.mark.parametrize("field", ["rounds", "seed", "participation", "weights", "precision", "rules"])
def test_identity_changes_with_settings_that_change_results(field: str) -> None:
    other = {"rounds": 3, "seed": 1, "participation": 0.5, "weights": "uniform", "precision": "float64"}
    changed = us.Experiment(**{field: other.get(field, "released")})
    assert changed.identity() != us.Experiment().identity()


def test_identity_ignores_other_settings() -> None:
    other = us.Experiment(engine={"workers": 2}, checkpoint={"seconds": 0}, record={"rounds": [1]})
    assert other.identity() == us.Experiment().identity()


def test_method_without_a_loss_is_refused() -> None:
    with pytest.raises(UserError, match="expected one loss that trains the model, found none; start from fedavg"):
        us.Experiment(method=["average"])


def test_folders_of_runs_from_before_rules_had_their_name_are_read() -> None:
    """The key was called `preset`; the identity of a run must not change with its name."""
    raw = us.Experiment(method="flea", rules="released").resolved()
    old = json.loads(json.dumps(raw).replace('"rules"', '"preset"'))
    assert "preset" in old
    assert "rules" not in json.dumps(old)
    for read in (recipe.read_recorded, recipe.validate):
        assert read(old, "old").resolved() == raw
    assert us.Experiment(method="fedavg", rules="released").identity() == "9c2aed48"
    assert us.Experiment(method="flea").identity() == "a968682f", "the parts' own setting was renamed too"
    assert recipe.validate({"method": {"flea": {"preset": "released"}}}, "old").resolved()["method"][1] == {
        "flea": us.Experiment(method=["flea", {"flea": {"rules": "released"}}]).resolved()["method"][1]["flea"]
    }
    with pytest.raises(UserError, match="preset"):
        recipe.validate({"preset": "paper", "rules": "released"}, "both")
