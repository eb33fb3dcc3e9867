"""The grid of a comparison: its cells, and the mistakes that stop it before the first run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew.base.errors import UserError
from unskew.comparisons import grid as grids

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A recipe with a grid."""

    def make(compare: Any, **changes: Any) -> Path:
        path = tmp_path / "grid.yaml"
        path.write_text(yaml.safe_dump(toys.settings(**changes) | {"compare": compare}, sort_keys=False))
        return path

    return make


def cells(path: Path, *overrides: str, **options: Any) -> tuple[grids.Cell, ...]:
    return grids.load(str(path), list(overrides), options).cells


def labels(path: Path, *overrides: str, **options: Any) -> list[str]:
    return list(dict.fromkeys(cell.label for cell in cells(path, *overrides, **options)))


def test_every_method_setting_and_seed_is_a_cell(write: Write) -> None:
    settings = {"few": {"rounds": 2}, "slow": {"local.lr": 0.001, "rounds": 7}}
    path = write({"methods": ["fedavg", "fedprox+avgm"], "seeds": [4, 2], "settings": settings})
    actual = [
        (c.label, c.setting, c.seed, c.experiment.seed, c.experiment.rounds, c.experiment.local.lr) for c in cells(path)
    ]
    methods = ("fedavg", "fedprox+avgm")
    assert actual == [
        (method, setting, seed, seed, *values)
        for seed in (4, 2)
        for setting, values in (("few", (2, 0.05)), ("slow", (7, 0.001)))
        for method in methods
    ]
    assert {c.experiment.label for c in cells(path)} >= {"fedavg"}


def test_a_method_may_have_a_label_and_settings(write: Write) -> None:
    path = write({"methods": ["fedavg", {"strong": {"fedprox": {"mu": 1}}}, {"fedprox": {"mu": 0.5}}], "seeds": [0]})
    cells_by_label = {c.label: c.experiment.method for c in cells(path)}
    assert cells_by_label["strong"] == us.Experiment(method=["fedprox", {"prox": {"mu": 1}}]).method
    assert cells_by_label["fedprox"] == us.Experiment(method=["fedprox", {"prox": {"mu": 0.5}}]).method


def test_equal_experiments_share_a_folder_whatever_their_labels(write: Write) -> None:
    one, two = cells(write({"methods": ["fedprox", "fedavg+prox"], "seeds": [0]}))
    assert one.label != two.label
    assert one.name == two.name == f"fedprox-s0-{one.experiment.identity()}"


def test_every_combination_of_tuned_values_is_a_row(write: Write) -> None:
    tune = {"fedprox": {"method.prox.mu": [0.1, 1], "local.lr": [0.2, 0.3]}}
    path = write({"methods": ["fedavg", "fedprox"], "seeds": [0], "tune": tune})
    cells_by_label = {c.label: c.experiment for c in cells(path)}
    assert list(cells_by_label) == ["fedavg"] + [f"fedprox mu={mu}, lr={lr}" for mu in (0.1, 1) for lr in (0.2, 0.3)]
    assert cells_by_label["fedprox mu=1, lr=0.2"].local.lr == 0.2
    assert {"prox": {"mu": 1.0}} in cells_by_label["fedprox mu=1, lr=0.2"].method


def test_options_replace_the_recipes_grid(write: Write) -> None:
    path = write({"methods": ["fedavg", {"strong": {"fedprox": {"mu": 1}}}], "tune": {"fedavg": {"local.lr": [1, 2]}}})
    grid = grids.load(str(path), [], {"methods": ["strong", "moon"], "seeds": "0-2,9", "metric": "best"})
    assert list(dict.fromkeys(c.label for c in grid.cells)) == ["strong", "moon"]
    assert {"prox": {"mu": 1.0}} in grid.cells[0].experiment.method
    assert (grid.compare.seeds, grid.compare.metric) == ((0, 1, 2, 9), "best")


def test_a_recipe_without_a_grid_takes_methods_from_the_command_line() -> None:
    assert len(grids.load("quick", [], {"methods": ["fedavg", "moon"], "seeds": "0,1"}).cells) == 4


def test_overrides_reach_every_cell(write: Write) -> None:
    assert {c.experiment.rounds for c in cells(write({"methods": ["fedavg", "moon"]}), "rounds=9")} == {9}


def test_a_selection_holds_rows_out(write: Write) -> None:
    assert {c.experiment.data.validation for c in cells(write({"methods": ["fedavg"]}), select="validation")} == {0.1}
    own = write({"methods": ["fedavg"], "select": "validation"}, data={"validation": 0.3})
    assert {c.experiment.data.validation for c in cells(own)} == {0.3}
    assert {c.experiment.data.validation for c in cells(write({"methods": ["fedavg"]}))} == {0.0}


def test_a_single_run_ignores_the_grid(write: Write) -> None:
    assert us.load_recipe(str(write({"methods": ["moon"]})))[1] == us.Experiment(**toys.settings())
    with pytest.raises(UserError, match="unknown key compare"):
        us.load_recipe("quick", ["compare.seeds=[1]"])


def test_the_demo_is_fair_and_small() -> None:
    grid = grids.load("demo")
    shown = "fedavg, fedprox, scaffold, moon, fedlmd, fedlmd-tf, flea, fedmix"
    assert ", ".join(grid.compare.methods) == shown
    assert (len(grid.cells), grid.cells[0].experiment.data.name) == (24, "digits"), "eight methods, three seeds"
    assert {(c.experiment.partition.clients, c.experiment.partition.per_client) for c in grid.cells} == {(20, 2)}  # type: ignore[union-attr]
    shared = [c.experiment.model_copy(update={"method": [], "seed": 0}) for c in grid.cells]
    assert all(one == shared[0] for one in shared)


MISTAKES: dict[str, tuple[Any, list[str], list[str]]] = {
    "unknown key": ({"method": ["fedavg"]}, [], ["unknown key compare.method", "mean compare.methods?", "seeds"]),
    "not a section": ([1], [], ["compare", "[1]"]),
    "no methods": ({"seeds": [1]}, [], ["--methods", "found none"]),
    "methods as a word": ({"methods": "fedavg"}, [], ["compare.methods", "[fedavg, fedprox]", "'fedavg'"]),
    "a number as a method": ({"methods": [3]}, [], ["compare.methods", "3"]),
    "a method twice": ({"methods": ["moon", "moon"]}, [], ["compare.methods", "moon is listed twice"]),
    "unknown method": ({"methods": ["fedavg", "fedprx"]}, [], ["'fedprx'", "did you mean fedprox?"]),
    "unknown method on the command line": ({}, ["--methods", "fedavg,mooon"], ["'mooon'", "did you mean moon?"]),
    "unknown field of a method": ({"methods": [{"fedprox": {"my": 1}}]}, [], ["method.fedprox", "'my'"]),
    "method that needs sgd": ({"methods": ["scaffold"]}, ["local.optimiser=adam"], ["scaffold", "local.optimiser"]),
    "a word as a seed": ({"methods": ["moon"], "seeds": ["x"]}, [], ["compare.seeds", "integer", "'x'"]),
    "a truth value as a seed": ({"methods": ["moon"], "seeds": [True]}, [], ["compare.seeds", "integers", "[True]"]),
    "a fraction as a seed": ({"methods": ["moon"], "seeds": [1.5]}, [], ["compare.seeds", "integers", "[1.5]"]),
    "a method of two lines": (
        {"methods": [{"a\nb": "moon"}]}, [], ["compare.methods", "line breaks", "'a\\nb'"]
    ),
    "a bell in a setting": (
        {"methods": ["moon"], "settings": {"a\a": {}}}, [], ["compare.settings", "control characters", "'a\\x07'"]
    ),
    "a seed twice": ({"methods": ["moon"], "seeds": [1, 1]}, [], ["compare.seeds", "once"]),
    "no seeds": ({"methods": ["moon"], "seeds": []}, [], ["compare.seeds"]),
    "seeds that fall": ({"methods": ["moon"]}, ["--seeds", "4-2"], ["compare.seeds", "0-4", "'4-2'"]),
    "a negative seed": ({"methods": ["moon"], "seeds": [-1]}, [], ["seed", "-1"]),
    "unknown key in a setting": (
        {"methods": ["moon"], "settings": {"s": {"partition.client": 2}}}, [], ["mean partition.clients?"]
    ),
    "seed in a setting": ({"methods": ["moon"], "settings": {"s": {"seed": 2}}}, [], ["compare.settings", "seeds"]),
    "setting as a number": ({"methods": ["moon"], "settings": {"s": 2}}, [], ["compare.settings.s", "2"]),
    "unknown method in tune": (
        {"methods": ["moon"], "tune": {"mon": {"local.lr": [1]}}}, [], ["compare.tune", "'mon'", "did you mean moon?"]
    ),
    "candidates as a number": (
        {"methods": ["moon"], "tune": {"moon": {"local.lr": 1}}}, [], ["compare.tune.moon.local.lr", "list"]
    ),
    "no candidates": ({"methods": ["moon"], "tune": {"moon": {"local.lr": []}}}, [], ["compare.tune", "local.lr"]),
    "impossible candidate": (
        {"methods": ["moon"], "tune": {"moon": {"method.moon.mu": [1, -1]}}}, [], ["method.moon.mu", "-1"]
    ),
    "method without a loss": (
        {"methods": ["moon", {"mine": {"prox": {"mu": 1}}}]}, [], ["compare: mine: method", "start from fedavg"]
    ),
    "unknown metric": ({"methods": ["moon"], "metric": "last"}, [], ["compare.metric: found 'last'", "mean_last10"]),
    "unknown metric on the command line": ({"methods": ["moon"]}, ["--metric", "last"], ["compare.metric", "'last'"]),
    "metric and selection": ({"methods": ["moon"]}, ["--metric", "best", "--select", "validation"], ["--metric"]),
    "selection without rows": (
        {"methods": ["moon"]}, ["--select", "validation", "data.validation=0"], ["data.validation", "found 0"]
    ),
    "seed as an override": ({"methods": ["moon"]}, ["seed=3"], ["seed", "--seeds"]),
    "method as an override": ({"methods": ["moon"]}, ["method=fedavg"], ["method", "--methods"]),
    "base that is wrong": ({"methods": ["moon"]}, ["rounds=0"], ["rounds", "greater than or equal to 1"]),
    "unknown model": ({"methods": ["moon"]}, ["model=mpl"], ["'mpl'", "did you mean mlp?"]),
}  # fmt: skip


@pytest.mark.parametrize("seeds", [[1.5], [True], ["x"]])
def test_an_invalid_seed_is_reported_once(seeds: list[Any], write: Write) -> None:
    with pytest.raises(UserError) as refused:
        cells(write({"methods": ["moon"], "seeds": seeds}))
    assert str(refused.value).count("compare.seeds") == 1


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_refused_before_the_first_run(
    mistake: str, write: Write, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.comparisons.process_pool.run_cells", lambda *a, **k: pytest.fail("cells were run"))
    section, words, expected = MISTAKES[mistake]
    result = unskew("compare", write(section), *words, "--out", tmp_path / "out")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("unskew: ")
    assert "Traceback" not in result.err
    for word in expected:
        assert word in result.err, result.err
    assert not (tmp_path / "out").exists()
