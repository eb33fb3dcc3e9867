"""FLea's figures: recipes with the settings in their labels, tables from short runs, panels, axes and series."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import unskew as us
import unskew.reproductions.record_audits as record_audits
from unskew.audits import save_audit
from unskew.audits.metrics.exposure import exposure
from unskew.comparisons import grid as grids
from unskew.data.partition import split
from unskew.engines.engine import EngineContext
from unskew.engines.stacked.stacked_engine import StackedEngine
from unskew.reproductions.figures import (
    FIGURES,
    client_holdings,
    feature_clusters,
    feature_leaks,
    mixed_labels,
    mixing_weights,
    option_sweep,
)
from unskew.reproductions.figures.paper_figure import recipe_labels, recipe_of
from unskew.reproductions.target_cells import FinishedCell, PlannedCell
from unskew.results import recorded_messages
from unskew.results.load_run import load
from unskew.server.sampling import Sampling

NUMBERS = (2, 3, 6, 7, 8, 9, 10, 11, 12, 13)
SMALL = {"device": "cpu", "engine": {"name": "loop", "workers": 1}, "model": "mlp", "data": "digits"}


def round_trip(frame: pd.DataFrame) -> pd.DataFrame:
    """A table after writing it to CSV and reading it back."""
    return pd.read_csv(io.StringIO(frame.to_csv(index=False)), keep_default_na=False)


def cells(number: int) -> list[grids.Cell]:
    return list(grids.load(f"flea-figure{number}").cells)


def lines(axes: Any) -> dict[str, list[tuple[float, float]]]:
    lines_by_gid = {str(line.get_gid()): line for line in axes.lines}
    return {
        gid.removeprefix("line "): list(zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())))
        for gid, line in lines_by_gid.items()
        if gid.startswith("line ")
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FinishedCell]:
    """Two rounds of two epochs on ten clients with two labels each; FLea with and without decorrelation."""
    finished_runs = {}
    methods = {"flea": "flea", "flea lam2=0": [{"flea": {"lam2": 0}}], "fedmix": [{"fedmix": {"group": 5}}]}
    for label, method in methods.items():
        out = tmp_path_factory.mktemp("runs") / "run"
        split = {"name": "classes", "clients": 10, "per_client": 2}
        keys = {"rounds": 2, "participation": 0.4, "local": {"epochs": 2, "batch": 32, "lr": 0.05}}
        us.run(us.Experiment(method=method, partition=split, record={"rounds": [1, 2]}, **SMALL | keys), out=out)
        finished_runs[label] = FinishedCell(label, "", 0, load(out))
    return finished_runs


def test_every_figure_of_flea_except_drawings_exists() -> None:
    names = [name for name in FIGURES if name.startswith("flea/")]
    assert names == [f"flea/figure{number}" for number in NUMBERS]


@pytest.mark.parametrize("number", [number for number in NUMBERS if number not in (7, 8)])
def test_recipes_have_the_papers_rounds(number: int) -> None:
    assert {cell.experiment.rounds for cell in cells(number)} == {100}


@pytest.mark.parametrize("number", [6, 10, 11])
def test_labels_match_the_options(number: int) -> None:
    names = {"share": "fraction"}
    for cell in cells(number):
        _, option, value = option_sweep.parse_label(cell.method)
        experiment = cell.experiment
        clients = {"urbansound8k": 70, "urbansound8k_mel": 24}[cell.setting]
        assert (experiment.data.name, experiment.model.name, experiment.partition.clients) == (
            cell.setting, "audionet", clients,
        )  # fmt: skip
        if option:
            part = next(p for p in experiment.create_method().parts if p.name == "flea")
            assert getattr(part, names.get(option, option)) == value
            assert option != "lam1" or part.lam2 == 0  # type: ignore[attr-defined]
            assert option != "lam2" or part.lam1 == 1  # type: ignore[attr-defined]


def test_figure2_has_the_settings_of_section_2() -> None:
    work = {c.setting: (c.experiment.partition.clients, c.experiment.participation) for c in cells(2)}
    assert work == {"5000 rows": (10, 1.0), "500 rows": (100, 0.1), "100 rows": (500, 0.1)}
    assert {(c.experiment.partition.name, c.experiment.local.epochs, c.experiment.local.batch) for c in cells(2)} == {
        ("iid", 10, 64)
    }


def test_figure9_records_clients_that_train_in_the_recorded_rounds() -> None:
    experiment = cells(9)[0].experiment
    assert list(experiment.record.rounds) == [1, 10, 50]  # type: ignore[arg-type]
    sampling = Sampling(experiment.seed, 500, experiment.participation)
    for round in experiment.record.rounds:
        assert len(set(sampling.sampled(round)) & set(experiment.record.clients)) >= 3  # type: ignore[arg-type]


def test_figure8_draws_a_batch_of_mixing_weights() -> None:
    planned = [PlannedCell(c.method, c.setting, c.seed, c.experiment) for c in cells(8)]
    table = mixing_weights.data(planned)
    assert len(table) == 32
    assert table["beta"].between(0, 1).all()
    assert table["beta"].nunique() > 30  # one for each row
    many = [replace(planned[0], experiment=planned[0].experiment.model_copy(update={"seed": s})) for s in range(60)]
    assert mixing_weights.data(many)["beta"].std() == pytest.approx(0.05**0.5, abs=0.01)  # of Beta(2, 2)
    axes = FIGURES["flea/figure8"].draw(round_trip(table)).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("row of the batch", "mixing weight, β")
    (points,) = [line for line in axes.lines if line.get_gid() == "points beta"]
    assert list(points.get_ydata()) == table["beta"].tolist()


def test_figure12_counts_every_row_once_and_shows_the_first_clients() -> None:
    experiment = us.Experiment(**SMALL, partition={"name": "dirichlet", "clients": 150, "alpha": 0.5})
    table = client_holdings.data([PlannedCell("flea", "cifar10", 0, experiment)])
    assert table["count"].sum() == 1438
    figure = FIGURES["flea/figure12"].draw(round_trip(table))
    (axes,) = figure.axes
    assert np.asarray(axes.images[0].get_array()).shape == (10, 100)
    assert np.asarray(axes.images[0].get_array())[3, 7] == table.query("client == 7 and label == 3")["count"].item()
    assert "Missing: ucihar, urbansound8k." in figure.get_supxlabel().replace("\n", " ")


def test_figure13_has_a_box_for_every_number_of_clients() -> None:
    planned = [
        PlannedCell("flea", f"{name}={k}", 0, us.Experiment(**SMALL, partition={"name": name, "clients": k} | more))
        for name, more in (("dirichlet", {"alpha": 0.1}), ("iid", {}))
        for k in (10, 100)
    ]
    table = client_holdings.data(planned)
    figure = FIGURES["flea/figure13"].draw(round_trip(table))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["dirichlet", "iid"]
    for axes, kind in zip(figure.axes, ("dirichlet", "iid")):
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["10", "100"]
        sizes = table[table["setting"] == f"{kind}=100"].groupby("client")["count"].sum()
        assert axes.texts[1].get_text() == f"{sizes.median():g}"
        assert axes.get_yscale() == "log"


def test_figure13_has_the_papers_client_sizes() -> None:
    """The sizes depend only on the rows per class; the paper prints a median of 5685 and a maximum of 8199."""
    (experiment,) = [c.experiment for c in cells(13) if c.setting == "dirichlet=10"]
    parts = split(experiment.partition, np.repeat(np.arange(10), 5000), 10, experiment.seed)
    sizes = [len(parts.rows[k]) for k in range(10)]
    assert sizes == [6630, 3448, 6186, 3102, 1060, 6377, 8199, 2853, 5184, 6961]


def test_figure7_sums_mixed_labels_over_the_batches(runs: dict[str, FinishedCell]) -> None:
    table = mixed_labels.data([runs["flea"]])
    assert list(table["panel"].unique()) == ["buffer", "client", "epoch 1", "epoch 2"]
    sums = table.groupby("panel")["count"].sum()
    assert sums["epoch 1"] == pytest.approx(sums["client"], abs=0.1)  # every row is used once
    (second,) = [one for one in recorded_messages.read(runs["flea"].run.folder) if one.round == 2]
    sent = second.of(second.senders[0], "down")["flea"]["labels"]
    counts = torch.bincount(sent, minlength=10).tolist()  # type: ignore[arg-type]
    assert table[table["panel"] == "buffer"]["count"].tolist() == counts
    figure = FIGURES["flea/figure7"].draw(round_trip(table))
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "feature buffer", "rows of the client", "mixed batches, epoch 1", "mixed batches, epoch 2",
    ]  # fmt: skip


def test_figure9_has_exposure_correlation_and_both_attacks(
    runs: dict[str, FinishedCell], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(feature_leaks, "BUDGET", replace(feature_leaks.BUDGET, iterations=20, images=4))
    table = feature_leaks.data(list(runs.values()))
    assert list(table["panel"].unique()) == ["exposure", "c", "decoder", "context"]
    figure = FIGURES["flea/figure9"].draw(round_trip(table))
    a, b, c, d = figure.axes
    ledger = runs["flea"].run.ledger
    assert [y for _, y in lines(a)["flea"]] == pytest.approx(exposure(ledger, "features", 10)["value"].tolist())
    assert list(lines(b)) == ["flea", "flea lam2=0"]
    assert list(lines(c)) == ["flea, round 1", "flea, round 2", "flea lam2=0, round 1", "flea lam2=0, round 2"]
    assert "fedmix, round 1" in lines(d)
    assert (c.get_ylabel(), d.get_xscale()) == ("training MSE, pixels from 0 to 1", "log")
    saved = save_audit.read_all(runs["flea"].run.folder)[-1]
    assert saved.budget == feature_leaks.BUDGET
    monkeypatch.setattr(feature_leaks, "audit", None)  # a saved audit is not computed again
    assert feature_leaks.data(list(runs.values())).equals(table)
    finished = [(grids.Cell(p.method, "", "", 0, p.run.config), p.run) for p in runs.values()]
    path = tmp_path / "results" / "flea" / "leak.csv"
    assert record_audits.record(finished[:1], path) == [path]
    record_audits.record(finished, path)
    rows = pd.read_csv(path)
    # Rows with and without decorrelation are distinct, and earlier rows are replaced, not duplicated.
    assert len(rows) == sum(len(save_audit.read_all(p.run.folder)[-1].leaks) for p in runs.values())
    defences = {("flea", "none"), ("flea", "flea.lam2=0.0"), ("fedmix", "mix.group=5")}
    assert set(zip(rows["method"], rows["defence"])) == defences
    values = rows[(rows["defence"] == "flea.lam2=0.0") & (rows["metric"] == "matching loss")]["value"].tolist()
    leaks = save_audit.read_all(runs["flea lam2=0"].run.folder)[-1].leaks
    assert sorted(values) == pytest.approx(sorted(t.value for t in leaks if t.metric == "matching loss"), rel=1e-5)


def test_figure9_without_recorded_messages_lists_missing_panels(tmp_path: Path) -> None:
    us.run(us.Experiment(method="flea", rounds=2, **SMALL), out=tmp_path / "run")
    figure = FIGURES["flea/figure9"].draw(feature_leaks.data([FinishedCell("flea", "", 0, load(tmp_path / "run"))]))
    text = figure.get_supxlabel().replace("\n", " ")
    assert text.endswith("Missing: flea lam2=0, fedmix; (c) decoder; (d) context.")


def test_figure3_scores_clients_that_train_the_runs_model(
    runs: dict[str, FinishedCell], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    us.run(us.Experiment(method="fedavg", rounds=2, **SMALL), out=tmp_path / "run")
    monkeypatch.setattr(feature_clusters, "POINTS", 40)
    monkeypatch.setattr(feature_clusters, "CASES", {"5000 rows": (5000, 10, 0), "100 rows": (100, 2, 0)})
    table = feature_clusters.data([FinishedCell("fedavg", "", 0, load(tmp_path / "run"))])
    scores = table[table["panel"] == "db"]
    assert set(scores["case"]) == {"100 rows"}  # digits has too few rows for the other case
    assert set(zip(scores["when"], scores["split"])) == set(feature_clusters.BARS)
    figure = FIGURES["flea/figure3"].draw(round_trip(table))
    assert [len(axes.collections[0].get_offsets()) for axes in figure.axes[:2]] == [40, 40]
    assert figure.get_supxlabel().replace("\n", " ").endswith("Missing: 5000 rows.")


def test_figure3_on_a_gpu_prefetches_no_round_of_unassigned_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    us.run(us.Experiment(method="fedavg", rounds=9, stop={"target": 1}, **SMALL), out=tmp_path / "run")
    monkeypatch.setattr(feature_clusters, "POINTS", 40)
    monkeypatch.setattr(feature_clusters, "CASES", {"100 rows": (100, 2, 0)})
    finished = [FinishedCell("fedavg", "", 0, load(tmp_path / "run"))]
    by_loop = feature_clusters.data(finished)

    def stacked(context: EngineContext, workers: int) -> StackedEngine:
        engine = StackedEngine(context)
        engine._prefetch._enabled = True  # as on a GPU
        return engine

    monkeypatch.setattr(feature_clusters, "LoopEngine", stacked)
    by_stack = feature_clusters.data(finished)
    scores = [table[table["panel"] == "db"]["y"].tolist() for table in (by_loop, by_stack)]
    assert scores[1] == pytest.approx(scores[0], abs=0.002)


def test_shared_rows_are_the_same_for_all_clients_and_never_private() -> None:
    rows_by_client = feature_clusters._assign_rows(1000, 100, 5, 200, seed=0)
    shared = set(rows_by_client[0][100:].tolist())
    assert len(shared) == 200
    assert all(set(rows[100:].tolist()) == shared for rows in rows_by_client.values())
    own = torch.cat([rows[:100] for rows in rows_by_client.values()]).tolist()
    assert len(set(own)) == 500
    assert not shared & set(own)


def sweep_table(name: str) -> pd.DataFrame:
    """A row set for every label of a recipe: best 20 + 10 x value, c 0.9 - value / 100, accuracies of two rounds."""
    rows: list[tuple] = []
    for label in recipe_labels(name)[0]:
        at = ("urbansound8k", label, *option_sweep.parse_label(label), 0)
        rows += [(*at, "best", 0, 20 + 10 * at[4]), (*at, "c", 0, 0.9 - at[4] / 100)]
        rows += [(*at, "accuracy", t, 10.0 * t) for t in (1, 2)] if not at[3] else []
    return pd.DataFrame(rows, columns=option_sweep.COLUMNS)


def test_figure6_has_accuracy_by_round_and_by_share() -> None:
    left, right = FIGURES["flea/figure6"].draw(round_trip(sweep_table("flea/figure6"))).axes
    assert list(lines(left)) == ["fedmix", "flea"]
    assert (left.get_xlabel(), right.get_xlabel()) == ("communication round", "share of a client's rows")
    assert [x for x, _ in lines(right)["flea"]] == [0.02, 0.05, 0.1, 0.2, 0.5]


def test_figure10_has_densities_and_accuracies() -> None:
    left, right = FIGURES["flea/figure10"].draw(round_trip(sweep_table("flea/figure10"))).axes
    assert list(lines(left)) == [f"a={a:g}" for a in (0.5, 1, 1.5, 2, 3, 5)]
    assert max(y for _, y in lines(left)["a=2"]) == pytest.approx(1.5)
    assert [x for x, _ in lines(right)["flea"]] == [0.5, 1, 1.5, 2, 3, 5]


def test_figure11_has_the_decorrelation_on_a_second_axis() -> None:
    left, right, other = FIGURES["flea/figure11"].draw(round_trip(sweep_table("flea/figure11"))).axes
    assert [x for x, _ in lines(left)["flea"]] == [0, 0.5, 1, 2, 5]
    assert [x for x, _ in lines(right)["flea"]] == [0, 1, 3, 6, 10]
    assert [y for _, y in lines(other)["1 - c"]] == pytest.approx([0.1, 0.11, 0.13, 0.16, 0.2])


def test_sweep_tables_are_made_from_runs(runs: dict[str, FinishedCell]) -> None:
    table = option_sweep.data([runs["flea"], runs["fedmix"], runs["flea lam2=0"]])
    assert table[table["metric"] == "accuracy"]["method"].unique().tolist() == ["flea", "fedmix"]
    best = table[table["metric"] == "best"].set_index("series")["score"]
    assert best["flea"] == round(runs["flea"].run.summary.best, 2)
    metrics = runs["flea"].run.metrics
    c = metrics[metrics["metric"] == "flea/c"]["value"].mean()
    assert table[(table["series"] == "flea") & (table["metric"] == "c")]["score"].item() == pytest.approx(c, abs=1e-4)


def test_every_figure_has_a_recipe() -> None:
    assert all(grids.load(recipe_of(f"flea/figure{number}")).cells for number in NUMBERS)
