"""Recipes of FedLMD's figures: every cell has the settings in its label."""

from __future__ import annotations

from typing import Any

import pytest

from unskew.comparisons import grid as grids
from unskew.comparisons.grid import Cell
from unskew.reproductions.figures import FIGURES, accuracy_by_option
from unskew.reproductions.figures.paper_figure import recipe_of
from unskew.server.sampling import Sampling


def cells(number: int) -> list[Cell]:
    return list(grids.load(f"fedlmd-figure{number}").cells)


def fields(cell: Cell) -> dict[str, Any]:
    """Settings of the method's last part, which is the distillation."""
    return vars(cell.experiment.create_method().parts[-1])


@pytest.mark.parametrize("name", [name for name in FIGURES if name.startswith("fedlmd/")])
def test_a_figure_has_a_recipe_of_the_papers_length_and_data(name: str) -> None:
    grid = grids.load(recipe_of(name))
    assert grid.compare.metric == "best"
    for cell in grid.cells:
        assert (cell.experiment.data.name, cell.experiment.rounds, cell.experiment.partition.clients) == (
            "cifar10",
            200,
            100,
        )
        method, _, option = cell.method.partition(" ")
        assert cell.experiment.label == method
        assert option == "" or name == "fedlmd/figure9"


@pytest.mark.parametrize(("number", "alphas"), [(2, {0.05}), (4, {0.05}), (6, {0.05, 0.3, 0.5}), (9, {0.05})])
def test_labels_match_the_skew(number: int, alphas: set[float]) -> None:
    values = {(cell.setting, cell.experiment.partition.alpha) for cell in cells(number)}  # type: ignore[union-attr]
    assert values == {(f"cifar10-{alpha:g}", alpha) for alpha in alphas}


def test_figure5_varies_shards_and_dirichlet_alpha() -> None:
    for cell in cells(5):
        _, option, value = accuracy_by_option.by_column(cell.method, cell.setting)
        partition: Any = cell.experiment.partition
        assert (partition.draws, partition.seed) == ("released", 19940817)
        assert (partition.per_client if option == "s" else partition.alpha) == value


def test_figure7_varies_epochs_or_participants() -> None:
    for cell in cells(7):
        _, option, value = accuracy_by_option.by_setting(cell.method, cell.setting)
        sampling, epochs = Sampling(0, 100, cell.experiment.participation), cell.experiment.local.epochs
        assert (epochs, len(sampling.sampled(1))) == ((value, 10) if option == "epochs" else (5, value))


def test_figure8_varies_the_round_of_the_switch() -> None:
    values = {accuracy_by_option.by_setting(cell.method, cell.setting)[2]: fields(cell)["switch"] for cell in cells(8)}
    assert values == {r: r for r in (0, 25, 50, 100, 150, 200)}


def test_figure9_varies_one_option_and_leaves_the_other_at_one() -> None:
    values = cells(9)
    for cell in values:
        _, option, value = accuracy_by_option.by_method(cell.method, cell.setting)
        assert (fields(cell)["tau"], fields(cell)["beta"]) == ((value, 1) if option == "tau" else (1, value))
    assert len(values) - len({cell.name for cell in values}) == 5  # tau = 1 and beta = 1 are one run of each method


def test_figures_share_their_runs() -> None:
    names = {number: {cell.name for cell in cells(number)} for number in (2, 4, 6)}
    assert names[2] < names[4]
    assert len(names[4] & names[6]) == 3  # all but FedAvg+KD
