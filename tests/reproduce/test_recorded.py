"""`unskew reproduce --recorded`: tables and figures from recorded rows, those of the very experiment alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from runner.conftest import Command

from .conftest import SMALL, Player

LDA = ("reproduce", "fedlmd/table3-lda", *SMALL, "--only", "cifar10-0.05")
SHOWN = tuple(word for word in SMALL if word not in ("--device", "cpu"))  # nothing is played, so no device
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def kept(player: Player, unskew: Command, tmp_path: Path) -> Path:
    """Three methods recorded under table 3, one of them on a second draw; the runs are gone."""
    said = unskew(*LDA, "--methods", "fedavg,fedlmd,fedprox", "--seeds", "0", "--record", "kept")
    assert said.code == 0, said.err
    assert unskew(*LDA, "--methods", "fedlmd", "--seeds", "0", "--draws", "7", "--record", "kept").code == 0
    player.broken = {"fedavg", "fedlmd", "fedprox"}
    (tmp_path / "runs").rename(tmp_path / "gone")
    return tmp_path / "kept" / "fedlmd"


def shown(unskew: Command, target: str, *words: object) -> dict:
    said = unskew("reproduce", target, *SHOWN, "--recorded", "kept", *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


@pytest.mark.usefixtures("as_the_papers")
def test_a_table_shows_all_that_is_recorded_and_names_the_rest(kept: Path, unskew: Command, player: Player) -> None:
    before, lines = list(player.played), pd.read_csv(kept / "accuracy.csv")
    told = shown(unskew, "fedlmd/table3-lda", "--only", "cifar10-0.05,cifar10-0.1")
    assert player.played == before
    cells = {cell["method"]: cell for cell in told["cells"]}
    assert list(cells) == ["fedavg", "fedlmd", "fedprox"]
    assert [cell["n"] for cell in cells.values()] == [1, 2, 1]
    ours = lines[lines["method"] == "fedlmd"].set_index("partition_seed")["best"]
    assert cells["fedlmd"]["mean"] == pytest.approx(ours.mean(), abs=1e-3)
    fedavg = lines.loc[lines["method"] == "fedavg", "best"].item()
    assert cells["fedavg"]["mean"] == pytest.approx(fedavg, abs=1e-3)
    assert cells["fedavg"]["lead"] == pytest.approx(ours[19940817] - fedavg, abs=1e-3), "paired on another draw"
    assert cells["fedprox"]["reached"] is not None, "no speed-up from the curves"
    assert "column cifar10-0.05, fedntd, scaffold, moon, fedcurv, fedrs, fednova: not recorded" in told["missing"]
    assert "column cifar10-0.1: not recorded" in told["missing"]


def test_repetitions_that_were_asked_for_are_named_one_by_one(kept: Path, unskew: Command) -> None:
    words = ("--only", "cifar10-0.05", "--methods", "fedlmd", "--seeds", "0,1", "--draws", "7")
    told = shown(unskew, "fedlmd/table3-lda", *words)["missing"]
    assert "column cifar10-0.05, fedlmd: not recorded: draw 7 with seed 1" in told


def test_seeds_and_draws_that_only_some_methods_have_are_named(kept: Path, unskew: Command) -> None:
    """Those of the recipe, seeds 0 to 2 on the released draw, and the draw that one method has."""
    told = shown(unskew, "fedlmd/table3-lda", "--only", "cifar10-0.05")["missing"]
    lack = "draw 19940817 with seeds 1, 2"
    assert f"column cifar10-0.05, fedlmd: not recorded: {lack}" in told
    assert f"column cifar10-0.05, fedavg, fedprox: not recorded: draw 7 with seed 0; {lack}" in told


def test_methods_are_ranked_on_the_draws_that_all_of_them_have(kept: Path, unskew: Command) -> None:
    """FedLMD's second draw would put it first; on the draw of all it is last."""
    lines = pd.read_csv(kept / "accuracy.csv", dtype=str, keep_default_na=False)
    best = {("fedavg", "19940817"): "33", ("fedprox", "19940817"): "43", ("fedlmd", "19940817"): "13"}
    lines["best"] = [best.get(key, "99") for key in zip(lines["method"], lines["partition_seed"])]
    for frame, name in ((lines, "accuracy"), (pd.read_csv(kept / "curves.csv", dtype=str), "curves")):
        other = frame.assign(dataset="cifar10", model="cnn", setting="alpha=0.05", rounds="200")
        other.to_csv(kept / f"{name}.csv", index=False)
    said = unskew("reproduce", "fedlmd/table3-lda", "--only", "cifar10-0.05", "--recorded", "kept", "--json")
    told = json.loads(said.out)
    assert [cell["n"] for cell in told["cells"]] == [1, 2, 1]
    assert told["rank_correlation"] == {"cifar10-0.05": -0.5}, "33 43 13 against 33.02 42.74 50.45"
    assert told["ranked_on"] == {"cifar10-0.05": 1}


def test_a_cell_is_found_under_the_table_that_recorded_it(kept: Path, unskew: Command) -> None:
    told = shown(unskew, "fedlmd/table1")
    assert [(cell["method"], cell["n"]) for cell in told["cells"]] == [("fedavg", 1), ("fedlmd", 2)]
    assert "column cifar10-0.05, fedntd, fedavg-kd: not recorded" in told["missing"]


def test_a_figure_is_drawn_from_the_curves_of_a_table(kept: Path, unskew: Command, tmp_path: Path) -> None:
    """FedProx too, whose strength a figure's rows name and a table's do not."""
    told = shown(unskew, "fedlmd/figure6", "--out", tmp_path / "out", "--record", "kept")
    table, curves = pd.read_csv(tmp_path / "out" / "figure6.csv"), pd.read_csv(kept / "curves.csv")
    assert set(table["method"]) == {"fedavg", "fedlmd", "fedprox"}
    mine = curves[(curves["partition_seed"] == 19940817) & (curves["round"] > 0)].sort_values(["method", "round"])
    assert list(table.sort_values(["method", "round"])["accuracy"]) == pytest.approx(list(mine["accuracy"]), abs=0.005)
    assert "columns cifar10-0.3, cifar10-0.5: not recorded" in told["missing"]
    assert (kept / "figure6.svg").read_bytes() == (tmp_path / "out" / "figure6.svg").read_bytes()
    assert set(pd.read_csv(kept / "accuracy.csv")["table"]) == {"table3-lda"}, "a run was recorded twice"


@pytest.mark.parametrize(
    "words",
    [
        ("--preset", "released"),
        ("--rounds", "3"),
        ("local.lr=0.5",),
        ("--seeds", "5"),
        ("--draws", "5"),
        ("--methods", "fedrs"),
        ("precision=bf16",),
        ("engine=stacked",),
        ("model=cnn",),
    ],
)
def test_nothing_that_matches_in_part_is_shown(words: tuple[str, ...], kept: Path, unskew: Command) -> None:
    said = unskew(*(w for w in LDA if w not in ("--device", "cpu")), "--recorded", "kept", *words)
    assert said.code == 2
    assert "nothing of what was asked for is recorded" in said.err
    assert "rows there have preset paper; rounds 2; precision float32; table table3-lda" in said.err


def test_a_method_with_another_strength_is_another_run(kept: Path, unskew: Command) -> None:
    """Rows whose setting says mu 0.5 are not those of the recipe's mu 1."""
    curves = pd.read_csv(kept / "curves.csv", dtype=str)
    curves.assign(setting=curves["setting"] + ";prox.mu=0.5").to_csv(kept / "curves.csv", index=False)
    lines = pd.read_csv(kept / "accuracy.csv", dtype=str, keep_default_na=False)
    lines.assign(setting=lines["setting"] + ";prox.mu=0.5").to_csv(kept / "accuracy.csv", index=False)
    said = unskew("reproduce", "fedlmd/figure6", *SHOWN, "--recorded", "kept")
    assert (said.code, "nothing of what was asked for is recorded" in said.err) == (2, True)


def test_what_is_missing_is_told_with_the_whole_command(kept: Path, unskew: Command, player: Player) -> None:
    """Preset, overrides, options and folder, so that typing it plays the very cells that are missing."""
    given = ("--methods", "fedavg,fedntd", "--rounds", "3", "--preset", "released")
    for target in ("fedlmd/figure2", "fedlmd/table1"):
        said = unskew("reproduce", target, "local.lr=0.5", *given, "--recorded", "kept")
        assert said.code == 2
        how = f"unskew reproduce {target} local.lr=0.5 {' '.join(given)} --record kept"
        assert f"play it: {how}" in said.err
    words = ("reproduce", "fedlmd/table1", *SHOWN, "--only", "cifar10-0.05", "--recorded", "kept")
    typed = " ".join(SHOWN[:-2])
    how = f"unskew reproduce fedlmd/table1 {typed} --only cifar10-0.05 --rounds 2 --record kept"
    assert f"to play what is missing: {how}" in unskew(*words).out
    assert json.loads(unskew(*words, "--json").out)["play"] == how


def test_labels_are_drawn_again_from_their_own_table(player: Player, unskew: Command, tmp_path: Path) -> None:
    words = ("reproduce", "fedlmd/figure2", *SHOWN)
    said = unskew(*words, "--recorded", "kept")
    assert (said.code, "shows more than accuracies by round" in said.err) == (2, True)
    assert unskew(*words, "--device", "cpu", "--record", "kept").code == 0
    drawn = {path.suffix: path.read_bytes() for path in (tmp_path / "runs/reproduce/fedlmd-figure2").iterdir()}
    assert unskew(*words, "--recorded", "kept", "--out", "again").code == 0
    assert {path.suffix: path.read_bytes() for path in (tmp_path / "again").iterdir()} == drawn
    for other in (("--preset", "released"), ("local.lr=0.5",), ("--rounds", "3"), ("partition.seed=5",)):
        assert (said := unskew(*words, *other, "--recorded", "kept")).code == 2, other
        assert "found none" in said.err
    fewer = unskew(*words, "--methods", "fedavg,fedntd", "--recorded", "kept", "--json")
    assert json.loads(fewer.out)["missing"] == ["fedntd: not recorded"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--device", "cpu"), "nothing is played with --recorded"),
        (("--record", "kept"), "recorded already"),
        ((), "expected accuracy.csv in nowhere/fedlmd, found none"),
    ],
)
def test_mistakes_are_told(words: tuple[str, ...], told: str, unskew: Command, player: Player) -> None:
    said = unskew("reproduce", "fedlmd/table1", "--recorded", "nowhere", *words)
    assert (said.code, told in said.err) == (2, True), said.err


def test_a_broken_row_is_told(kept: Path, unskew: Command) -> None:
    text = (kept / "accuracy.csv").read_text()
    best = str(pd.read_csv(kept / "accuracy.csv", dtype=str)["best"][0])
    (kept / "accuracy.csv").write_text(text.replace(f",{best},", ",many,"))
    said = unskew("reproduce", "fedlmd/table1", *SHOWN, "--recorded", "kept")
    assert (said.code, "is not readable" in said.err) == (2, True), said.err


def test_the_recorded_figures_are_those_of_the_recorded_curves(unskew: Command, tmp_path: Path) -> None:
    for number, only in ((4, ()), (6, ("--only", "cifar10-0.05"))):
        words = (*only, "--preset", "released", "--recorded", RESULTS, "--out", tmp_path)
        assert unskew("reproduce", f"fedlmd/figure{number}", *words).code == 0
        name = f"figure{number}.csv"
        assert (tmp_path / name).read_text() == (RESULTS / "fedlmd" / name).read_text()
