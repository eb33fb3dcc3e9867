"""`unskew reproduce` on small stand-ins: every runnable name, and what it writes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from runner.conftest import Command
from unskew.compare import grid as grids
from unskew.config.recipe import read
from unskew.reproduce.figures import FIGURES, feature_clusters, leak_figure
from unskew.reproduce.paper_names import stands_for
from unskew.reproduce.target_catalogue import targets

from .conftest import SMALL, Player

TABLES = [target.name for target in targets().values() if target.recipe and not target.is_figure]
FIGURE_NAMES = [target.name for target in targets().values() if target.recipe and target.name in FIGURES]
ONE = ("--only", "cifar10-0.05", "--methods", "fedavg,fedlmd", "--seeds", "0")


@pytest.mark.usefixtures("as_the_papers")
@pytest.mark.parametrize("name", TABLES)
def test_table_completes_on_a_stand_in(name: str, player: Player, unskew: Command, tmp_path: Path) -> None:
    compare = grids.read(read(name.replace("/", "-"))[2], name)
    column, methods = next(iter(compare.settings)), list(compare.methods)[:2]
    said = unskew("reproduce", name, *SMALL, "--only", column, "--methods", ",".join(methods), "--seeds", "0", "--json")
    assert said.code == 0, said.err
    cells = json.loads(said.out)["cells"]
    assert [(each["column"], each["method"]) for each in cells] == [(column, method) for method in methods]
    assert all(0 < each["mean"] <= 100 and each["paper"] for each in cells)
    out = tmp_path / "runs" / "reproduce" / name.replace("/", "-")
    assert {path.name for path in out.iterdir()} == {"table.csv", "table.md", "report.html"}
    assert f"{cells[0]['paper']:g}" in (out / "report.html").read_text()


def test_a_figure_takes_no_draws(unskew: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproduce.target_catalogue.Target.is_figure", True)
    said = unskew("reproduce", "fedlmd/table1", "--draws", "1,2")
    assert (said.code, "lines go over seeds" in said.err) == (2, True)


def test_a_figure_shows_a_column_or_its_stand_in(unskew: Command, player: Player) -> None:
    said = unskew("reproduce", "flea/figure7", *SMALL, "--only", "ucihar,hapt")
    assert (said.code, "hapt stands in for ucihar; a figure shows one of them" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("columns", "more"),
    [(["cifar10-q3-100"], ()), (["ucihar-0.3-100", "cifar10-0.5-50"], ("partition.min=1", "partition.block=0"))],
)
def test_flea_table1_completes_for_all_that_share(
    columns: list[str], more: tuple[str, ...], player: Player, unskew: Command
) -> None:
    """A draw of labels, then Dirichlet draws, one of them another data set's; all on the same digits."""
    methods = ["flea", "fedmix", "feddata"]
    few = ("--only", ",".join(columns), "--methods", ",".join(methods), "--seeds", "0", "--json")
    said = unskew("reproduce", "flea/table1", *SMALL, *more, *few)
    assert said.code == 0, said.err
    cells = json.loads(said.out)["cells"]
    assert [(c["column"], c["method"]) for c in cells] == [(c, m) for c in columns for m in methods]
    assert all(c["n"] == 1 and c["dataset"] == "digits" for c in cells)


# What the stand-in's options do not fit: iid splits have no draws, and other clients are recorded.
OTHER = {
    "flea/figure2": ((), ("partition.", "participation")),
    "flea/figure3": ((), ("partition.draws",)),
    "flea/figure9": (("record={rounds: [1, 2]}",), ()),
    "flea/figure12": (("partition.min=1", "partition.block=0"), ()),
    "flea/figure13": (("partition.min=1",), ()),
}


@pytest.mark.parametrize("name", FIGURE_NAMES)
def test_figure_completes_on_a_stand_in(
    name: str, player: Player, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leak_figure, "BUDGET", replace(leak_figure.BUDGET, iterations=2, images=2))
    monkeypatch.setattr(feature_clusters, "POINTS", 40)
    monkeypatch.setattr(feature_clusters, "CASES", {"100 rows": (100, 2, 0)})
    compare = grids.read(read(name.replace("/", "-"))[2], name)
    few = ["--methods", ",".join(list(compare.methods)[:2])]
    columns = [label for label in compare.settings if not stands_for(label)]
    few += ["--only", ",".join(columns[:2])] if columns else []
    more, less = OTHER.get(name, ((), ()))
    small = [*(word for word in SMALL if not word.startswith(less)), *more] if less else [*SMALL, *more]
    said = unskew("reproduce", name, *small, *few, "--seeds", "0", "--out", tmp_path / "out", "--record", "kept")
    assert said.code == 0, said.err
    key = name.partition("/")[2]
    assert len(pd.read_csv(tmp_path / "out" / f"{key}.csv"))
    assert {path.suffix for path in (tmp_path / "out").glob(f"{key}.*")} == {".csv", ".png", ".svg"}
    kept = tmp_path / "kept" / name.partition("/")[0]
    assert (kept / f"{key}.svg").read_bytes() == (tmp_path / "out" / f"{key}.svg").read_bytes()
    assert bool(player.played) != FIGURES[name].planned
    if not player.played:
        return
    lines = pd.read_csv(kept / "accuracy.csv", keep_default_na=False)
    assert set(lines["table"]) == {key}
    assert len(lines) == len(player.played), "rows of other runs were taken for the same"


def test_below_a_figure_stands_how_it_was_played(
    player: Player, unskew: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played or recorded: preset, draw of the split, what was changed, and what is missing."""
    below: list[str] = []
    monkeypatch.setattr(
        "unskew.reproduce.run_target._drawn", lambda picture, kind: below.append(picture.get_supxlabel()) or b""
    )
    words = ("reproduce", "fedlmd/figure4", *SMALL[:-2], "--methods", "fedavg", "--preset", "released")
    assert unskew(*words, "--device", "cpu", "--record", "kept").code == 0
    assert unskew(*words, "--recorded", "kept", "--out", "again").code == 0
    played, _, shown, _ = (" ".join(text.split()) for text in below)
    assert "digits, seed 0. Preset released, draw 19940817 of the split. Not as in the paper: data=digits" in played
    assert "rounds=2 instead of 200" in played
    assert "Missing: fedavg-kd, fedlmd, fedntd." in played
    assert shown == played
    assert "not played" not in shown


def test_a_column_is_called_the_same_in_tables_and_figures() -> None:
    tables, figures = (
        {label for name in names for label in grids.read(read(name.replace("/", "-"))[2], name).settings}
        for names in (
            [name for name in TABLES if name.startswith("fedlmd/")],
            [f"fedlmd/figure{n}" for n in (2, 4, 5, 6, 9)],
        )
    )
    assert figures <= tables


def test_started_again_it_plays_only_what_is_missing(player: Player, unskew: Command) -> None:
    first = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE)
    assert first.code == 0, first.err
    assert player.played == ["fedavg cifar10-0.05 0", "fedlmd cifar10-0.05 0"]
    unskew("reproduce", "fedlmd/table1", *SMALL, *ONE[:2], "--methods", "fedavg,fedlmd,fedntd", "--seeds", "0,1")
    # What is left goes by seed first.
    assert player.played[2:] == ["fedntd cifar10-0.05 0"] + [
        f"{m} cifar10-0.05 1" for m in ("fedavg", "fedlmd", "fedntd")
    ]


def test_answers_of_before_are_not_left_where_nothing_was_played(
    player: Player, unskew: Command, tmp_path: Path
) -> None:
    assert unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out").code == 0
    player.broken = {"fedavg", "fedlmd"}
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out")
    assert (said.code, "every run failed" in said.err) == (2, True)
    assert not (tmp_path / "out" / "table.csv").exists()


def test_tables_share_the_runs_they_have_in_common(player: Player, unskew: Command) -> None:
    unskew("reproduce", "fedlmd/table1", *SMALL, *ONE)
    said = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *ONE)
    assert said.code == 0
    assert len(player.played) == 2


@pytest.mark.usefixtures("as_the_papers")
def test_real_processes_play_it_too(unskew: Command, tmp_path: Path) -> None:
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE[:2], "--methods", "fedavg", "--seeds", "0", "--jobs", "1",
                  "--out", tmp_path / "out", "--json")  # fmt: skip
    assert said.code == 0, said.err
    assert json.loads(said.out)["cells"][0]["n"] == 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "paper, %" in page
    assert "33.02" in page


def test_a_failing_cell_is_reported_and_the_others_stand(player: Player, unskew: Command, tmp_path: Path) -> None:
    player.broken = {"fedlmd"}
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path / "out", "--record", tmp_path / "kept")
    assert said.code == 2
    assert "cifar10-0.05, fedlmd: seed 0 failed: the loss is not finite" in said.out
    assert "| cifar10-0.05 | fedlmd | failed | 0 |" in (tmp_path / "out" / "table.md").read_text()
    kept = pd.read_csv(tmp_path / "kept" / "fedlmd" / "accuracy.csv")
    assert list(kept["method"]) == ["fedavg"], "a run that is not finished was recorded"


def test_draws_of_the_split_are_repetitions(player: Player, unskew: Command) -> None:
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--draws", "1,2", "--json")
    assert said.code == 0, said.err
    assert [each["n"] for each in json.loads(said.out)["cells"]] == [2, 2]
    assert json.loads(said.out)["cells"][0]["lead"] is not None
    assert [word.split(" draw ")[1] for word in player.played] == ["1 0", "1 0", "2 0", "2 0"]


def test_cells_that_were_left_out_are_named(player: Player, unskew: Command) -> None:
    said = unskew("reproduce", "fedlmd/table3-lda", *SMALL, *ONE)
    found = re.search("missing: columns (.*): not asked for", said.out)
    assert found
    assert set(found[1].split(", ")) == {
        "cifar10-0.1", "cifar10-0.3", "cifar10-0.5", "mnist-0.1", "cifar100-0.1", "cinic10-0.1",
    }  # fmt: skip
    assert "missing: column cifar10-0.05, fedcurv, fedprox" in said.out
    assert "Not as in the paper: data=digits instead of cifar10, model=mlp instead of cnn" in " ".join(said.out.split())


def test_a_stand_in_has_no_number_of_the_paper_beside_it(player: Player, unskew: Command, tmp_path: Path) -> None:
    few = (*ONE[:2], "--methods", "fedavg,fedlmd,fedntd", "--seeds", "0")
    said = unskew("reproduce", "fedlmd/table1", *SMALL, *few, "--out", tmp_path)
    assert said.code == 0, said.err
    page = (tmp_path / "table.md").read_text()
    assert "No number of the paper stands beside cifar10-0.05: digits in place of cifar10, mlp in place of cnn." in page
    assert "33.02" not in page + said.out + (tmp_path / "report.html").read_text()
    assert "| difference |" not in page
    assert "rank correlation" not in page
    rows = pd.read_csv(tmp_path / "table.csv")
    assert rows[["paper", "difference", "outside"]].isna().all(axis=None)
    assert set(rows[["dataset", "model", "rounds"]].itertuples(index=False, name=None)) == {("digits", "mlp", 2)}


@pytest.mark.usefixtures("as_the_papers")
def test_fewer_rounds_keep_the_papers_number_and_are_told(player: Player, unskew: Command, tmp_path: Path) -> None:
    assert unskew("reproduce", "fedlmd/table1", *SMALL, *ONE, "--out", tmp_path).code == 0
    page = (tmp_path / "table.md").read_text()
    assert "| 33.02 | " in page
    assert "rounds=2 instead of 200" in page
    assert "The paper's numbers are those of its own settings, so none is marked as far off." in page
    assert " *" not in page
    assert pd.read_csv(tmp_path / "table.csv")["outside"].isna().all()


@pytest.mark.usefixtures("as_the_papers")
def test_a_method_of_another_table_has_the_number_printed_there(player: Player, unskew: Command) -> None:
    said = unskew(
        "reproduce", "fedlmd/table3-lda", *SMALL, *ONE[:2], "--methods", "fedlmd-tf", "--seeds", "0", "--json"
    )
    assert json.loads(said.out)["cells"][0]["paper"] == 45.08


def test_columns_without_data_are_missing_and_stop_no_other(player: Player, unskew: Command, tmp_path: Path) -> None:
    said = unskew("reproduce", "fedlmd/table3-lda", "--only", "cifar10-0.05,cinic10-0.1")
    assert said.code == 2
    assert "column cifar10-0.05: cifar10 is not in the data folder; get it: unskew data download cifar10" in said.err
    assert "unskew data unpack CINIC-10.tar.gz" in said.err
    assert player.played == []
    assert not (tmp_path / "runs").exists()


def test_without_a_name_all_are_listed_by_paper(unskew: Command) -> None:
    said = unskew("reproduce")
    assert said.code == 0
    assert all(name in said.out for name in targets())
    told = json.loads(unskew("reproduce", "--json").out)
    assert told["fedlmd/figure3"]["state"] == "-"
    assert told["hfmds/table2"]["state"] == "not yet"
