"""`unskew reproduce` on small stand-ins: every runnable target, and the files it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from runner.conftest import Command
from unskew.comparisons import grid as grids
from unskew.config.recipe import read
from unskew.reproductions.figures import FIGURES, feature_clusters, feature_leaks
from unskew.reproductions.paper_names import stands_for
from unskew.reproductions.target_catalogue import targets

from .conftest import SMALL, InProcessPool

TABLES = [target.name for target in targets().values() if target.recipe and not target.is_figure]
FIGURE_NAMES = [target.name for target in targets().values() if target.recipe and target.name in FIGURES]
ONE = ("--only", "cifar10-0.05", "--methods", "fedavg,fedlmd", "--seeds", "0")


@pytest.mark.usefixtures("as_the_papers")
@pytest.mark.parametrize("name", TABLES)
def test_table_completes_on_a_stand_in(name: str, pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    compare = grids.parse_section(read(name.replace("/", "-"))[2], name)
    column, methods = next(iter(compare.settings)), list(compare.methods)[:2]
    result = unskew(
        "reproduce", name, *SMALL, "--only", column, "--methods", ",".join(methods), "--seeds", "0", "--json"
    )
    assert result.code == 0, result.err
    cells = json.loads(result.out)["cells"]
    assert [(each["column"], each["method"]) for each in cells] == [(column, method) for method in methods]
    assert all(0 < each["mean"] <= 100 and each["paper"] for each in cells)
    out = tmp_path / "runs" / "reproduce" / name.replace("/", "-")
    assert {path.name for path in out.iterdir()} == {".unskew.json", "table.csv", "table.md", "report.html"}
    assert f"{cells[0]['paper']:g}" in (out / "report.html").read_text()


def test_a_figure_takes_no_draws(unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproductions.target_catalogue.Target.is_figure", True)
    result = unskew("reproduce", "fedlmd/table1", "--draws", "1,2")
    assert (result.code, "shows one draw of the split" in result.err) == (2, True)


def test_a_figure_shows_a_column_or_its_stand_in(unskew: Command, pool: InProcessPool) -> None:
    result = unskew("reproduce", "flea/figure7", *SMALL, "--only", "ucihar,hapt")
    assert (result.code, "hapt is the substitute for ucihar; a figure shows only one" in result.err) == (2, True)


@pytest.mark.parametrize(
    ("columns", "more"),
    [(["cifar10-q3-100"], ()), (["ucihar-0.3-100", "cifar10-0.5-50"], ("partition.min=1", "partition.block=0"))],
)
def test_flea_table1_completes_for_methods_that_share_data(
    columns: list[str], more: tuple[str, ...], pool: InProcessPool, unskew: Command
) -> None:
    """A split by classes, then Dirichlet splits, one of them for another dataset; all on the same digits."""
    methods = ["flea", "fedmix", "feddata"]
    few = ("--only", ",".join(columns), "--methods", ",".join(methods), "--seeds", "0", "--json")
    result = unskew("reproduce", "flea/table1", *SMALL, *more, *few)
    assert result.code == 0, result.err
    cells = json.loads(result.out)["cells"]
    assert [(c["column"], c["method"]) for c in cells] == [(c, m) for c in columns for m in methods]
    assert all(c["n"] == 1 and c["dataset"] == "digits" for c in cells)


# Figures that SMALL does not fit: (added overrides, removed prefixes). IID splits have no draws, for example.
OTHER = {
    "flea/figure2": ((), ("partition.", "participation")),
    "flea/figure3": ((), ("partition.draws",)),
    "flea/figure9": (("record={rounds: [1, 2]}",), ()),
    "flea/figure12": (("partition.min=1", "partition.block=0"), ()),
    "flea/figure13": (("partition.min=1",), ()),
}


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_figure_completes_on_a_stand_in(
    name: str, pool: InProcessPool, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_leaks, "BUDGET", replace(feature_leaks.BUDGET, iterations=2, images=2))
    monkeypatch.setattr(feature_clusters, "POINTS", 40)
    monkeypatch.setattr(feature_clusters, "CASES", {"100 rows": (100, 2, 0)})
    compare = grids.parse_section(read(name.replace("/", "-"))[2], name)
    few = ["--methods", ",".join(list(compare.methods)[:2])]
    columns = [label for label in compare.settings if not stands_for(label)]
    few += ["--only", ",".join(columns[:2])] if columns else []
    more, less = OTHER.get(name, ((), ()))
    small = [*(word for word in SMALL if not word.startswith(less)), *more] if less else [*SMALL, *more]
    result = unskew("reproduce", name, *small, *few, "--seeds", "0", "--out", tmp_path / "out", "--record", "kept")
    assert result.code == 0, result.err
    key = name.partition("/")[2]
    assert len(pd.read_csv(tmp_path / "out" / f"{key}.csv"))
    assert {path.suffix for path in (tmp_path / "out").glob(f"{key}.*")} == {".csv", ".png", ".svg"}
    kept = tmp_path / "kept" / name.partition("/")[0]
    assert (kept / f"{key}.svg").read_bytes() == (tmp_path / "out" / f"{key}.svg").read_bytes()
    assert bool(pool.completed) != FIGURES[name].planned
    if not pool.completed:
        return
    lines = pd.read_csv(kept / "accuracy.csv", keep_default_na=False)
    assert set(lines["table"]) == {key}
    assert len(lines) == len(pool.completed), "different runs were recorded as one row"


def test_caption_of_a_figure_describes_its_runs(
    pool: InProcessPool, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For new and for recorded runs: preset, draw of the split, changes to the recipe, and missing methods."""
    captions: list[str] = []
    monkeypatch.setattr(
        "unskew.reproductions.run_target._render", lambda picture, kind: captions.append(picture.get_supxlabel()) or b""
    )
    words = ("reproduce", "fedlmd/figure4", *SMALL[:-2], "--methods", "fedavg", "--preset", "released")
    assert unskew(*words, "--device", "cpu", "--record", "kept").code == 0
    assert unskew(*words, "--recorded", "kept", "--out", "again").code == 0
    new, _, recorded, _ = (" ".join(text.split()) for text in captions)
    assert "digits, seed 0. Preset released, draw 19940817 of the split. Differs from the paper: data=digits" in new
    assert "rounds=2 instead of 200" in new
    assert "Missing: fedavg-kd, fedlmd, fedntd." in new
    assert recorded == new


def test_columns_have_the_same_labels_in_tables_and_figures() -> None:
    tables, figures = (
        {label for name in names for label in grids.parse_section(read(name.replace("/", "-"))[2], name).settings}
        for names in (
            [name for name in TABLES if name.startswith("fedlmd/")],
            [f"fedlmd/figure{n}" for n in (2, 4, 5, 6, 9)],
        )
    )
    assert figures <= tables


def test_a_second_call_runs_only_missing_cells(pool: InProcessPool, unskew: Command) -> None:
    first = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE)
    assert first.code == 0, first.err
    assert pool.completed == ["fedavg cifar10-0.05 0", "fedlmd cifar10-0.05 0"]
    unskew("reproduce", "fedlmd/table1", *SMALL, *ONE[:2], "--methods", "fedavg,fedlmd,fedntd", "--seeds", "0,1")
    # The remaining cells are ordered by seed first.
    assert pool.completed[2:] == ["fedntd cifar10-0.05 0"] + [
        f"{m} cifar10-0.05 1" for m in ("fedavg", "fedlmd", "fedntd")
    ]


def test_earlier_output_stays_if_every_run_fails(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    assert unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out").code == 0
    before = (tmp_path / "out" / "table.csv").read_bytes()
    pool.broken = {"fedavg", "fedlmd"}
    result = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out")
    assert (result.code, "every run failed" in result.err) == (2, True)
    assert (tmp_path / "out" / "table.csv").read_bytes() == before
    assert (tmp_path / "out" / "report.html").exists()


def test_tables_share_common_runs(pool: InProcessPool, unskew: Command) -> None:
    unskew("reproduce", "fedlmd/table1", *SMALL, *ONE)
    result = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *ONE)
    assert result.code == 0
    assert len(pool.completed) == 2


@pytest.mark.usefixtures("as_the_papers")
def test_table_completes_with_real_processes(unskew: Command, tmp_path: Path) -> None:
    few = ("--methods", "fedavg", "--seeds", "0,1", "--jobs", "2", "--out", tmp_path / "out", "--json")
    result = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE[:2], *few, "--record", tmp_path / "kept")
    assert result.code == 0, result.err
    assert json.loads(result.out)["cells"][0]["n"] == 2
    assert set(pd.read_csv(tmp_path / "kept" / "fedlmd" / "accuracy.csv")["jobs"]) == {2}, "runs side by side"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "paper, %" in page
    assert "33.02" in page


def test_a_failing_cell_is_reported_and_the_others_are_kept(
    pool: InProcessPool, unskew: Command, tmp_path: Path
) -> None:
    pool.broken = {"fedlmd"}
    result = unskew(
        "reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out", "--record", tmp_path / "kept"
    )
    assert result.code == 2
    assert "cifar10-0.05, fedlmd: seed 0 failed: the loss is not finite" in result.out
    assert "| cifar10-0.05 | fedlmd | failed | – | – | 0 |" in (tmp_path / "out" / "table.md").read_text()
    kept = pd.read_csv(tmp_path / "kept" / "fedlmd" / "accuracy.csv")
    assert list(kept["method"]) == ["fedavg"], "an unfinished run was recorded"


def test_draws_of_the_split_are_repetitions(pool: InProcessPool, unskew: Command) -> None:
    result = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--draws", "1,2", "--json")
    assert result.code == 0, result.err
    assert [each["n"] for each in json.loads(result.out)["cells"]] == [2, 2]
    assert json.loads(result.out)["cells"][0]["lead"] is not None
    assert [word.split(" draw ")[1] for word in pool.completed] == ["1 0", "1 0", "2 0", "2 0"]


def test_cells_that_were_not_requested_are_named(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    result = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *ONE, "--out", tmp_path)
    _, _, printed = result.out.partition("not shown")
    lines = [line.split("|") for line in (tmp_path / "table.md").read_text().splitlines() if "not requested" in line]
    rows = {(columns.strip(), methods.strip()) for _, columns, methods, *_ in lines}
    others = next(columns for columns, methods in rows if methods == "all")
    assert set(others.split(", ")) == {
        "cifar10-0.1", "cifar10-0.3", "cifar10-0.5", "mnist-0.1", "cifar100-0.1", "cinic10-0.1",
    }  # fmt: skip
    (own,) = (row for row in rows if row[1] != "all")
    assert own[0] == "cifar10-0.05"
    assert set(own[1].split(", ")) == {"fedntd", "scaffold", "fedprox", "moon", "fedcurv", "fedrs", "fednova"}
    assert all(word in printed for word in ("cinic10-0.1", "fedcurv", "not requested"))
    assert "Differs from the paper: data=digits instead of cifar10, model=mlp instead of cnn" in " ".join(
        result.out.split()
    )


def test_the_papers_numbers_are_not_shown_for_a_stand_in(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    few = (*ONE[:2], "--methods", "fedavg,fedlmd,fedntd", "--seeds", "0")
    result = unskew("reproduce", "fedlmd/table1", *SMALL, *few, "--out", tmp_path)
    assert result.code == 0, result.err
    page = (tmp_path / "table.md").read_text()
    assert (
        "The paper has no comparable number for cifar10-0.05: digits in place of cifar10, mlp in place of cnn." in page
    )
    assert "33.02" not in page + result.out + (tmp_path / "report.html").read_text()
    assert "| difference |" not in page
    assert "rank correlation" not in page
    rows = pd.read_csv(tmp_path / "table.csv")
    assert rows[["paper", "difference", "outside"]].isna().all(axis=None)
    assert set(rows[["dataset", "model", "rounds"]].itertuples(index=False, name=None)) == {("digits", "mlp", 2)}


@pytest.mark.usefixtures("as_the_papers")
def test_with_fewer_rounds_the_papers_number_is_shown_without_a_mark(
    pool: InProcessPool, unskew: Command, tmp_path: Path
) -> None:
    assert unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path).code == 0
    page = (tmp_path / "table.md").read_text()
    assert "| 33.02 | " in page
    assert "rounds=2 instead of 200" in page
    assert "The paper's numbers are for its own settings, so differences are not marked." in page
    assert " *" not in page
    assert pd.read_csv(tmp_path / "table.csv")["outside"].isna().all()


@pytest.mark.usefixtures("as_the_papers")
def test_a_method_of_another_table_has_the_number_of_that_table(pool: InProcessPool, unskew: Command) -> None:
    result = unskew(
        "reproduce", "fedlmd/table3-lda", *SMALL, *ONE[:2], "--methods", "fedlmd-tf", "--seeds", "0", "--json"
    )
    assert json.loads(result.out)["cells"][0]["paper"] == 45.08


def test_columns_without_data_are_listed_as_missing(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    result = unskew("reproduce", "fedlmd/table3-lda", "--only", "cifar10-0.05,cinic10-0.1")
    assert result.code == 2
    assert "column cifar10-0.05: cifar10 is not in the dataset folder; " in result.err
    assert "get it: unskew data download cifar10" in result.err
    assert "unskew data unpack CINIC-10.tar.gz" in result.err
    assert pool.completed == []
    assert not (tmp_path / "runs").exists()


def test_without_a_target_all_are_listed_by_paper(unskew: Command) -> None:
    result = unskew("reproduce")
    assert result.code == 0
    assert all(name in result.out for name in targets())
    states = json.loads(unskew("reproduce", "--json").out)
    assert states["fedlmd/figure3"]["state"] == "-"
    assert states["hfmds/table2"]["state"] == "not yet"
