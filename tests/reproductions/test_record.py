"""`--record`: the columns of results/, one row per run, in a fixed order."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from runner.conftest import Command
from unskew.data import names
from unskew.protocol import method_registry
from unskew.reproductions.figure_table import with_run_columns
from unskew.reproductions.paper_names import vocabulary
from unskew.reproductions.record_runs import setting_of
from unskew.reproductions.target_catalogue import Target, find, targets
from unskew.reproductions.target_plan import ReproduceOptions, make

from .conftest import SMALL, InProcessPool

COLUMNS = (
    "table,method,dataset,setting,local_size,model,preset,rules,partition_seed,seed,rounds,best,best_round,final,mean_last10,"
    "bytes_up,bytes_down,seconds,test_rows,largest_class,jobs,engine,precision,device,versions,commit,superseded"
)
REPOSITORY = Path(__file__).parents[2]
WORDS = ("reproduce", "fedlmd/table1", *SMALL, "--only", "cifar10-0.05", "--record", "kept")


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "results").glob("*/accuracy.csv")), ids=lambda path: path.parent.name
)
def test_recorded_tables_have_the_agreed_columns(file: Path) -> None:
    assert file.read_text().splitlines()[0] == COLUMNS


def test_recording_twice_gives_the_same_file_and_keeps_other_rows(
    pool: InProcessPool, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_COMMIT", "abc123")
    kept = tmp_path / "kept" / "fedlmd"
    assert unskew(*WORDS, "--methods", "fedlmd", "--seeds", "1").code == 0
    assert unskew(*WORDS, "--methods", "fedavg", "--seeds", "0").code == 0
    before = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert unskew(*WORDS, "--methods", "fedlmd", "--seeds", "1").code == 0
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    assert len(pool.completed) == 2, "a recorded run was run again"
    assert before["accuracy.csv"].decode().splitlines()[0] == COLUMNS
    lines = pd.read_csv(kept / "accuracy.csv", keep_default_na=False)
    assert list(lines["method"]) == ["fedavg", "fedlmd"]
    assert set(lines["table"]) == {"table1"}
    assert set(lines["commit"]) == {"abc123"}
    assert list(lines["partition_seed"]) == [19940817, 19940817]
    curves = pd.read_csv(kept / "curves.csv")
    assert list(curves["round"]) == [0, 1, 2, 0, 1, 2]
    best = curves[curves["round"] > 0].groupby("method")["accuracy"].max()
    assert list(best) == list(lines["best"])


def test_a_row_names_the_recipes_preset_and_the_rules_of_the_run(
    pool: InProcessPool, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSKEW_JOBS", "4")
    words = (*WORDS, "--methods", "fedavg", "--seeds", "0", "--preset", "fitted")
    result = unskew(*words)
    assert "preset fitted (rules=released, data.augment.cutout=16, local.epochs=3; chosen because" in " ".join(
        result.out.split()
    )
    line = pd.read_csv(tmp_path / "kept" / "fedlmd" / "accuracy.csv", dtype=str).iloc[0]
    assert (line["preset"], line["rules"], line["jobs"]) == ("fitted", "released", "4")


def test_rows_of_a_stand_in_have_its_dataset_and_the_papers_local_size(
    pool: InProcessPool, unskew: Command, tmp_path: Path
) -> None:
    """HAPT, with digits in its place: rows have the run's dataset and the paper's rows per client."""
    few = ("--only", "hapt-q2-50", "--methods", "fedavg", "--seeds", "0", "--record", "kept")
    assert unskew("reproduce", "flea/table1", *SMALL, *few).code == 0
    line = pd.read_csv(tmp_path / "kept" / "flea" / "accuracy.csv", dtype=str).iloc[0]
    assert (line["table"], line["dataset"], line["local_size"]) == ("table1", "digits", "50")
    assert ",".join(line.index) == COLUMNS


@pytest.mark.parametrize(
    "file", sorted((REPOSITORY / "results").glob("*/accuracy.csv")), ids=lambda path: path.parent.name
)
def test_recorded_rows_have_registry_names(file: Path) -> None:
    lines = pd.read_csv(file, dtype=str, keep_default_na=False)
    assert set(lines["dataset"]) <= {*names(), *vocabulary()["stand_ins"].values()}
    assert {name for label in lines["method"] for name in label.split("+")} <= {
        *method_registry.method_names(),
        *method_registry.PARTS,
    }


def test_nothing_is_recorded_without_the_option(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    assert unskew(*WORDS[:-2], "--methods", "fedavg", "--seeds", "0").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"runs"}


@pytest.mark.parametrize("name", [target.name for target in targets().values() if target.recipe])
def test_different_runs_have_different_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproductions.substitute_data.why_unavailable", lambda *_: "")
    plan = make(find(name), ReproduceOptions(device="cpu", seeds="0"))
    names: dict[tuple[str, ...], set[str]] = {}
    for cell in plan.grid.cells:
        experiment = cell.experiment
        names.setdefault(
            (experiment.label, experiment.data.name, setting_of(plan, cell), experiment.model.name), set()
        ).add(cell.name)
    assert all(len(each) == 1 for each in names.values()), names


def cells(target: Target, monkeypatch: pytest.MonkeyPatch, *overrides: str, **asked: object) -> set[str]:
    monkeypatch.setattr("unskew.reproductions.substitute_data.why_unavailable", lambda *_: "")
    plan = make(target, ReproduceOptions(overrides, device="cpu", **asked))  # type: ignore[arg-type]
    return {setting_of(plan, cell) for cell in plan.grid.cells}


def test_setting_is_the_skew_and_the_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    lda = find("fedlmd/table3-lda")
    only = ("cifar10-0.05",)
    assert cells(lda, monkeypatch) == {"alpha=0.05", "alpha=0.1", "alpha=0.3", "alpha=0.5"}
    assert cells(lda, monkeypatch, only=only, rounds=5, draws=(1, 2)) == {"alpha=0.05"}
    assert cells(lda, monkeypatch, "precision=bf16", "engine=loop", "partition.seed=7", only=only) == {"alpha=0.05"}
    assert cells(lda, monkeypatch, "data.augment.cutout=16", only=only) == {"alpha=0.05;data.augment.cutout=16"}
    assert cells(find("fedlmd/table3-sharding"), monkeypatch) == {"s=2", "s=3", "s=5", "s=10"}
    assert cells(find("fedlmd/table4"), monkeypatch) == {"alpha=0.05"}


def test_a_figures_table_has_the_setting_of_every_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproductions.substitute_data.why_unavailable", lambda *_: "")
    plan = make(find("flea/figure11"), ReproduceOptions(device="cpu", only=("urbansound8k",)))
    series = ["flea lam2=3", "flea lam2=10", "no method's"]
    table = with_run_columns(plan, pd.DataFrame({"series": series, "dataset": "urbansound8k", "seed": 0}))
    assert table["setting"].tolist()[:2] == ["q=3", "q=3;flea.lam2=10.0"]
