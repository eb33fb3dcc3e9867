"""The papers' figures: panels, axes and series from their tables, and the tables from short real runs."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from unskew.base.errors import UserError
from unskew.comparisons import grid as grids
from unskew.reproductions.figures import FIGURES, accuracy_by_option
from unskew.reproductions.figures.paper_figure import missing_series, recipe_labels, recipe_of
from unskew.reproductions.target_cells import FinishedCell
from unskew.results.load_run import load
from unskew.runner.run_experiment import run
from unskew.server.sampling import Sampling

SMALL = ["data=digits", "data.augment={}", "model=mlp", "rounds=3", "engine={name: loop, workers: 1}"]
SMALL += ["partition={name: dirichlet, clients: 10, alpha: 0.05}", "local.epochs=1", "local.lr=0.05"]
RunCells = Callable[..., list[FinishedCell]]


@pytest.fixture(scope="module")
def run_cells(tmp_path_factory: pytest.TempPathFactory) -> RunCells:
    """Run cells of a figure's recipe as short runs on digits; equal cells share one run."""
    folder = tmp_path_factory.mktemp("cells")

    def run_recipe(name: str, keep: Callable[[grids.Cell], bool], *more: str, **options: Any) -> list[FinishedCell]:
        cells = [c for c in grids.load(recipe_of(name), [*SMALL, *more], options).cells if keep(c)]
        for cell in cells:
            if not (folder / cell.name).exists():
                run(cell.experiment, out=folder / cell.name)
        return [FinishedCell(c.label, c.setting, c.seed, load(folder / c.name)) for c in cells]

    return run_recipe


def round_trip(frame: pd.DataFrame) -> pd.DataFrame:
    """A table after writing it to CSV and reading it back."""
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)))


def lines(axes: Any, kind: str = "line") -> dict[str, Any]:
    lines_by_gid = {str(line.get_gid()): line for line in axes.lines}
    return {gid.partition(" ")[2]: line for gid, line in lines_by_gid.items() if gid.startswith(f"{kind} ")}


def points(line: Any) -> list[tuple[float, float]]:
    return list(zip(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()))


def names_at_the_end(axes: Any) -> set[str]:
    return {text.get_text() for text in axes.texts}


def curves(methods: list[str], settings: list[str], seeds: tuple[int, ...] = (0,), rounds: int = 12) -> pd.DataFrame:
    """A table of curves with accuracy 10 x method + round + seed."""
    return pd.DataFrame(
        [
            ("cifar10", m, s, k, t, 10.0 * i + t + k)
            for s in settings
            for i, m in enumerate(methods)
            for k in seeds
            for t in range(1, rounds + 1)
        ],
        columns=["dataset", "method", "setting", "seed", "round", "accuracy"],
    )


def bests(name: str, seeds: tuple[int, ...] = (0,)) -> pd.DataFrame:
    """A table with every cell of a recipe, with best accuracy 20 + 10 x value^0.5 + seed."""
    readers = {"fedlmd/figure5": accuracy_by_option.by_column, "fedlmd/figure9": accuracy_by_option.by_method}
    parse_label = readers.get(name, accuracy_by_option.by_setting)
    methods, settings = recipe_labels(name)
    rows = [(*parse_label(m, s), k) for m in methods for s in settings for k in seeds]
    scores = [20 + 10 * value**0.5 + k for _, _, value, k in rows]
    cells = [("cifar10", *row, 200, best, best - 1, best - 2) for row, best in zip(rows, scores)]
    return pd.DataFrame(cells, columns=accuracy_by_option.COLUMNS)


def labels_table(series: list[str], rounds: int = 4) -> pd.DataFrame:
    rows = [
        ("cifar10", s, 0, t, label, name, 100 * i + 10 * label + t)
        for i, s in enumerate(series)
        for t in range(1, rounds + 1)
        for label, name in enumerate(("cat", "dog", "elk"))
    ]
    return pd.DataFrame(rows, columns=["dataset", "series", "seed", "round", "label", "name", "count"])


def test_every_figure_of_fedlmd_except_drawings_exists() -> None:
    names = [name for name in FIGURES if name.startswith("fedlmd/")]
    assert names == [f"fedlmd/figure{number}" for number in (2, 4, 5, 6, 7, 8, 9)]
    assert all(figure.name == name and name[-1] in figure.title for name, figure in FIGURES.items())


def test_figure2_is_three_maps_of_labels_by_round() -> None:
    frame = labels_table(["training rows", "fedavg", "fedlmd"])
    figure = FIGURES["fedlmd/figure2"].draw(round_trip(frame))
    maps = [axes for axes in figure.axes if axes.get_ylabel() == "label"]
    titles = [axes.get_title(loc="left") for axes in maps]
    assert titles == [
        "training rows of the sampled clients",
        "fedavg: predictions on the test set",
        "fedlmd: predictions on the test set",
    ]
    assert maps[-1].get_xlabel() == "communication round"
    assert [tick.get_text() for tick in maps[0].get_yticklabels()] == ["cat 0", "dog 1", "elk 2"]
    for number, axes in enumerate(maps):
        cells = np.asarray(axes.images[0].get_array())
        assert cells.tolist() == [[100 * number + 10 * label + t for t in range(1, 5)] for label in range(3)]
        assert axes.images[0].get_extent() == [0.5, 4.5, 2.5, -0.5]
    tops = [axes.images[0].get_clim() for axes in maps]
    assert tops == [(0, 24), (0, 224), (0, 224)]  # predictions share one colour scale
    assert "Missing" not in figure.get_supxlabel()


def test_figure2_leaves_unevaluated_rounds_empty_and_lists_missing_methods() -> None:
    frame = labels_table(["training rows", "fedlmd"])
    figure = FIGURES["fedlmd/figure2"].draw(frame[(frame["series"] != "fedlmd") | (frame["round"] % 2 == 0)])
    maps = [axes for axes in figure.axes if axes.get_ylabel() == "label"]
    assert len(maps) == 2
    assert maps[1].images[0].get_array().mask.tolist() == [[False, True, False]] * 3  # type: ignore[union-attr]
    assert figure.get_supxlabel().endswith("Missing: fedavg.")


@pytest.mark.parametrize(
    ("number", "panels"), [(4, ["cifar10-0.05"]), (6, ["cifar10-0.05", "cifar10-0.3", "cifar10-0.5"])]
)
def test_curves_have_a_panel_per_setting_and_a_line_per_method(number: int, panels: list[str]) -> None:
    name = f"fedlmd/figure{number}"
    methods, settings = recipe_labels(name)
    figure = FIGURES[name].draw(round_trip(curves(methods, settings, seeds=(0, 2))))
    assert [axes.get_title(loc="left") for axes in figure.axes] == panels
    for axes in figure.axes:
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("communication round", "test accuracy, %")
        thick, thin = lines(axes), lines(axes, "run")
        assert list(thick) == methods
        assert names_at_the_end(axes) == set(methods)
        assert points(thin[f"{methods[1]} 2"])[:2] == [(1, 13.0), (2, 14.0)]
        # The mean of seeds 0 and 2 is 10 + round + 1; the running mean of rounds 3 to 12 is at round 7.5.
        assert points(thick[methods[1]])[0] == (1, 12.0)
        assert points(thick[methods[1]])[11] == (12, 10 + 7.5 + 1)
    assert figure.get_supxlabel().startswith("cifar10, 2 seeds.")
    assert "Missing" not in figure.get_supxlabel()


def test_curves_list_missing_methods_and_settings() -> None:
    frame = curves(["fedavg", "fedlmd"], ["cifar10-0.05"])
    more = curves(["fedavg"], ["cifar10-0.3"], seeds=(0, 1))
    figure = FIGURES["fedlmd/figure6"].draw(pd.concat([frame, more]))
    assert [list(lines(axes)) for axes in figure.axes] == [["fedavg", "fedlmd"], ["fedavg"]]
    text = figure.get_supxlabel().replace("\n", " ")
    assert text.startswith("cifar10, 1 to 2 seeds.")
    assert "Missing: cifar10-0.5; fedntd, fedrs, fedprox, fedcurv, moon, scaffold, fednova; " in text
    assert text.endswith("fedlmd at cifar10-0.3.")


def test_a_method_that_is_not_in_the_recipe_is_drawn_too() -> None:
    figure = FIGURES["fedlmd/figure4"].draw(curves(["fedavg", "fedlmd+prox"], ["cifar10-0.05"]))
    assert list(lines(figure.axes[0])) == ["fedavg", "fedlmd+prox"]


AGAINST = {
    5: {"shards per client, s": [2, 3, 5, 10], "Dirichlet concentration, α": [0.05, 0.1, 0.3, 0.5]},
    7: {"local epochs, E": [1, 3, 5, 10], "clients per round": [5, 10, 20, 50]},
    8: {"switching round, R (0: FedLMD, 200: FedLMD-Tf)": [0, 25, 50, 100, 150, 200]},
    9: {"τ": [0.5, 1, 2, 3, 5], "β": [0.1, 0.5, 1, 3, 5, 10]},
}
METHODS = {
    5: ["fedavg", "fedlmd-tf", "fedls", "fedntd-tf", "fedrs", "fednova"],
    7: ["fedavg", "fedlmd", "fedlmd-tf", "fedntd"],
    8: ["fedlmd"],
    9: ["fedlmd", "fedlmd-tf", "fedntd", "fedntd-tf", "fedavg-kd"],
}


@pytest.mark.parametrize("number", AGAINST)
def test_best_accuracy_against_a_setting_has_a_panel_per_kind_and_a_line_per_method(number: int) -> None:
    name = f"fedlmd/figure{number}"
    figure = FIGURES[name].draw(round_trip(bests(name, seeds=(0, 1))))
    assert [axes.get_xlabel() for axes in figure.axes] == list(AGAINST[number])
    for axes, values in zip(figure.axes, AGAINST[number].values()):
        assert axes.get_ylabel() == "best test accuracy, %"
        assert axes.get_xscale() == ("linear" if number == 8 else "log")
        assert list(axes.get_xticks()) == values
        assert list(lines(axes)) == METHODS[number]
        for line in lines(axes).values():
            x, y = zip(*points(line))
            assert list(x) == values
            assert y == pytest.approx([20.5 + 10 * v**0.5 for v in values])
        assert all(len(points(dots)) == 2 * len(values) for dots in lines(axes, "runs").values())
        assert names_at_the_end(axes) == (set(METHODS[number]) if number != 8 else set())
    assert len({axes.get_ylim() for axes in figure.axes}) == 1
    assert (
        figure.get_supxlabel()
        == "cifar10, 2 seeds. Best test accuracy over 200 rounds, mean over seeds; dots: single runs."
    )


def test_one_seed_has_no_dots_and_missing_values_are_named() -> None:
    frame = bests("fedlmd/figure7")
    gone = (frame["option"] == "epochs") & (frame["value"] > 3) & (frame["method"] == "fedntd")
    figure = FIGURES["fedlmd/figure7"].draw(frame[~gone & (frame["value"] != 50)])
    left = figure.axes[0]
    assert [x for x, _ in points(lines(left)["fedntd"])] == [1, 3]
    assert not lines(left, "runs")
    assert figure.get_supxlabel().endswith("Missing: participants=50; fedntd at epochs=5, epochs=10.")


@pytest.mark.parametrize("name", FIGURES)
def test_no_runs_give_an_empty_table_and_nothing_to_draw(name: str) -> None:
    empty = FIGURES[name].data([])
    assert empty.empty
    with pytest.raises(UserError, match=f"{name}: expected at least one finished run"):
        FIGURES[name].draw(empty)


def test_drawing_does_not_change_matplotlibs_settings() -> None:
    before = dict(mpl.rcParams)
    FIGURES["fedlmd/figure4"].draw(curves(["fedavg"], ["cifar10-0.05"]))
    assert dict(mpl.rcParams) == before


def test_no_series_is_missing_from_a_full_grid() -> None:
    assert missing_series(["a", "b"], ["s=2"], [("a", "s=2"), ("b", "s=2")]) == ""


def test_label_table_uses_ledger_holdings_and_predictions_of_every_round(run_cells: RunCells) -> None:
    runs = run_cells("fedlmd/figure2", lambda cell: True, "participation=0.3", seeds=[0, 1])
    table = FIGURES["fedlmd/figure2"].data([runs[3], *runs[:3]])
    assert table["seed"].unique().tolist() == [0]  # the smaller of two seeds with equally many runs
    assert table["series"].unique().tolist() == ["training rows", "fedavg", "fedlmd"]
    first = runs[0].run
    counts = first.clients.pivot(index="client", columns="class", values="rows").to_numpy()
    sampling = Sampling(0, 10, 0.3)
    for round in (1, 2, 3):
        rows = table[table["round"] == round].set_index("series")
        assert rows.loc["training rows", "count"].tolist() == counts[sampling.sampled(round)].sum(0).tolist()
        for method in ("fedavg", "fedlmd"):
            assert rows.loc[method, "count"].sum() == 359  # digits' test rows
    assert table["name"].map(str).tolist() == table["label"].map(str).tolist()
    FIGURES["fedlmd/figure2"].draw(round_trip(table))


def test_curve_table_is_made_from_real_runs(run_cells: RunCells) -> None:
    runs = run_cells("fedlmd/figure4", lambda cell: cell.method in ("fedavg", "fedlmd"), "participation=0.3")
    table = FIGURES["fedlmd/figure4"].data(runs)
    assert table["round"].tolist() == [1, 2, 3, 1, 2, 3]
    best = table.groupby("method")["accuracy"].max()
    assert best.to_dict() == {p.method: round(p.run.summary.best, 2) for p in runs}
    figure = FIGURES["fedlmd/figure4"].draw(round_trip(table))
    assert figure.get_supxlabel().replace("\n", " ").endswith("Missing: fedavg-kd, fedntd.")


@pytest.mark.parametrize(
    ("name", "keep"),
    [
        ("fedlmd/figure8", lambda cell: cell.setting in ("switch=0", "switch=200")),
        ("fedlmd/figure9", lambda cell: cell.label in ("fedlmd tau=1", "fedlmd beta=1")),
    ],
)
def test_accuracy_by_option_table_is_made_from_real_runs(
    run_cells: RunCells, name: str, keep: Any, tmp_path: Path
) -> None:
    runs = run_cells(name, keep, "participation=0.3")
    table = FIGURES[name].data(runs)
    assert table["best"].tolist() == [round(p.run.summary.best, 2) for p in runs]
    assert set(table["rounds"]) == {3}
    assert set(table["method"]) == {"fedlmd"}
    figure = FIGURES[name].draw(round_trip(table))
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000
