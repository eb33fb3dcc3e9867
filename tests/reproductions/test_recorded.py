"""`unskew reproduce --recorded`: tables and figures from the rows of exactly this experiment."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import unskew as unskew_package
from runner.conftest import Command
from unskew.base.errors import UserError
from unskew.reproductions.near_matches import near_matches
from unskew.reproductions.shipped_results import results_folder

from .conftest import SMALL, InProcessPool

LDA = ("reproduce", "fedlmd/table3-lda", *SMALL, "--only", "cifar10-0.05")
SHOWN = tuple(word for word in SMALL if word not in ("--device", "cpu"))  # nothing is run, so no device
SHOWN_LDA = tuple(word for word in LDA if word not in ("--device", "cpu"))
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture
def recorded(pool: InProcessPool, unskew: Command, tmp_path: Path) -> Path:
    """Three methods recorded under table 3, one of them also on a second draw; the run folders are moved away."""
    result = unskew(*LDA, "--methods", "fedavg,fedlmd,fedprox", "--seeds", "0", "--record", "kept")
    assert result.code == 0, result.err
    assert unskew(*LDA, "--methods", "fedlmd", "--seeds", "0", "--draws", "7", "--record", "kept").code == 0
    pool.broken = {"fedavg", "fedlmd", "fedprox"}
    (tmp_path / "runs").rename(tmp_path / "gone")
    return tmp_path / "kept" / "fedlmd"


def shown(unskew: Command, target: str, *words: object) -> dict:
    result = unskew("reproduce", target, *SHOWN, "--recorded", "kept", *words, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.usefixtures("as_the_papers")
def test_a_table_shows_recorded_cells_and_lists_the_others(
    recorded: Path, unskew: Command, pool: InProcessPool
) -> None:
    before, lines = list(pool.completed), pd.read_csv(recorded / "accuracy.csv")
    output = shown(unskew, "fedlmd/table3-lda", "--only", "cifar10-0.05,cifar10-0.1")
    assert pool.completed == before
    cells = {cell["method"]: cell for cell in output["cells"]}
    assert list(cells) == ["fedavg", "fedlmd", "fedprox"]
    assert [cell["n"] for cell in cells.values()] == [1, 2, 1]
    best = lines[lines["method"] == "fedlmd"].set_index("partition_seed")["best"]
    assert cells["fedlmd"]["mean"] == pytest.approx(best.mean(), abs=1e-3)
    fedavg = lines.loc[lines["method"] == "fedavg", "best"].item()
    assert cells["fedavg"]["mean"] == pytest.approx(fedavg, abs=1e-3)
    assert cells["fedavg"]["lead"] == pytest.approx(best[19940817] - fedavg, abs=1e-3), "paired with another draw"
    assert cells["fedprox"]["reached"] is not None, "no speed-up from the curves"
    assert "column cifar10-0.05, fedntd, scaffold, moon, fedcurv, fedrs, fednova: not recorded" in output["missing"]
    assert "column cifar10-0.1: not recorded" in output["missing"]


def test_missing_requested_repetitions_are_listed(recorded: Path, unskew: Command) -> None:
    words = ("--only", "cifar10-0.05", "--methods", "fedlmd", "--seeds", "0,1", "--draws", "7")
    missing = shown(unskew, "fedlmd/table3-lda", *words)["missing"]
    assert "column cifar10-0.05, fedlmd: not recorded: draw 7 with seed 1" in missing


def test_repetitions_that_only_some_methods_have_are_listed(recorded: Path, unskew: Command) -> None:
    """The recipe's repetitions are seeds 0 to 2 on the released draw; one method has another draw."""
    missing = shown(unskew, "fedlmd/table3-lda", "--only", "cifar10-0.05")["missing"]
    lack = "draw 19940817 with seeds 1, 2"
    assert f"column cifar10-0.05, fedlmd: not recorded: {lack}" in missing
    assert f"column cifar10-0.05, fedavg, fedprox: not recorded: draw 7 with seed 0; {lack}" in missing


def test_methods_are_ranked_on_the_draws_that_all_of_them_have(recorded: Path, unskew: Command) -> None:
    """FedLMD's second draw would rank it first; on the common draw it is last."""
    lines = pd.read_csv(recorded / "accuracy.csv", dtype=str, keep_default_na=False)
    best = {("fedavg", "19940817"): "33", ("fedprox", "19940817"): "43", ("fedlmd", "19940817"): "13"}
    lines["best"] = [best.get(key, "99") for key in zip(lines["method"], lines["partition_seed"])]
    for frame, name in ((lines, "accuracy"), (pd.read_csv(recorded / "curves.csv", dtype=str), "curves")):
        other = frame.assign(dataset="cifar10", model="cnn", setting="alpha=0.05", rounds="200")
        other.to_csv(recorded / f"{name}.csv", index=False)
    result = unskew("reproduce", "fedlmd/table3-lda", "--only", "cifar10-0.05", "--recorded", "kept", "--json")
    output = json.loads(result.out)
    assert [cell["n"] for cell in output["cells"]] == [1, 2, 1]
    assert output["rank_correlation"] == {"cifar10-0.05": -0.5}, "33 43 13 against 33.02 42.74 50.45"
    assert output["ranked_on"] == {"cifar10-0.05": 1}


def test_cells_recorded_under_another_table_are_used(recorded: Path, unskew: Command) -> None:
    output = shown(unskew, "fedlmd/table1")
    assert [(cell["method"], cell["n"]) for cell in output["cells"]] == [("fedavg", 1), ("fedlmd", 2)]
    assert "column cifar10-0.05, fedntd, fedavg-kd: not recorded" in output["missing"]


def test_a_figure_is_drawn_from_the_curves_of_a_table(recorded: Path, unskew: Command, tmp_path: Path) -> None:
    """Also for FedProx, whose strength is in the setting of a figure's rows but not of a table's."""
    output = shown(unskew, "fedlmd/figure6", "--out", tmp_path / "out", "--record", "kept")
    table, curves = pd.read_csv(tmp_path / "out" / "figure6.csv"), pd.read_csv(recorded / "curves.csv")
    assert set(table["method"]) == {"fedavg", "fedlmd", "fedprox"}
    own = curves[(curves["partition_seed"] == 19940817) & (curves["round"] > 0)].sort_values(["method", "round"])
    assert list(table.sort_values(["method", "round"])["accuracy"]) == pytest.approx(list(own["accuracy"]), abs=0.005)
    assert "columns cifar10-0.3, cifar10-0.5: not recorded" in output["missing"]
    assert (recorded / "figure6.svg").read_bytes() == (tmp_path / "out" / "figure6.svg").read_bytes()
    assert set(pd.read_csv(recorded / "accuracy.csv")["table"]) == {"table3-lda"}, "a run was recorded twice"


def test_near_matches_of_missing_cells_are_named(recorded: Path, unskew: Command) -> None:
    """Rows were recorded with two rounds and the paper's preset: a request for others is told so."""
    words = list(SHOWN_LDA)
    words[words.index("--rounds") + 1] = "30"
    refused = unskew(*words, "--methods", "fedavg", "--seeds", "0", "--recorded", "kept")
    assert refused.code == 2
    assert "1 missing cell is recorded with rounds 2: --rounds 2\n" in refused.err
    assert unskew(*words[:-2], "--rounds", "2", "--methods", "fedavg", "--recorded", "kept").code == 0
    both = unskew(*words, "--preset", "released", "--methods", "fedavg", "--seeds", "0", "--recorded", "kept")
    assert "recorded with preset paper and rounds 2: --preset paper --rounds 2" in both.err
    precision = unskew(*SHOWN_LDA, "precision=bf16", "--methods", "fedavg", "--seeds", "0", "--recorded", "kept")
    assert "recorded with precision float32: precision=float32" in precision.err
    shown_part = shown(unskew, "fedlmd/table3-lda", "--only", "cifar10-0.05", "--methods", "fedavg,fedrs")
    assert shown_part["near_matches"] == [], "nothing near was recorded for fedrs"


def test_near_matches_name_overrides_of_the_recorded_row() -> None:
    key = ("table1", "fedavg", "cifar10", "s=2", "cnn", "paper", "1", "0", "200")
    row = (*key[:3], "s=2;data.augment.cutout=16", *key[4:])
    (line,) = near_matches([key], {row: {}}, {})
    assert line == "1 missing cell is recorded with data.augment.cutout=16: data.augment.cutout=16"
    assert near_matches([key], {(*key[:3], "s=3", *key[4:]): {}}, {}) == [], "another skew is another column"
    assert near_matches([key], {("table1", "fedlmd", *key[2:]): {}}, {}) == []
    swept = (*key[:3], "s=2;prox.mu=0.01", *key[4:])
    assert near_matches([key], {swept: {}}, {}) == [], "reproduce takes no settings of a method's parts"
    asked = (*key[:3], "s=2;local.epochs=3", *key[4:])
    (line,) = near_matches([asked], {key: {}}, {})
    assert line == "1 missing cell is recorded without local.epochs=3"
    (line,) = near_matches([key], {(*key[:6], "19940817", *key[7:]): {}}, {})
    assert line == "1 missing cell is recorded with draw 19940817: --draws 19940817"


def test_rows_to_be_run_again_say_so(recorded: Path, unskew: Command) -> None:
    lines = pd.read_csv(recorded / "accuracy.csv", keep_default_na=False)
    assert set(lines["superseded"]) == {""}
    lines["superseded"] = ["another order of passes" if name == "fedlmd" else "" for name in lines["method"]]
    lines.to_csv(recorded / "accuracy.csv", index=False)
    printed = unskew("reproduce", "fedlmd/table3-lda", *SHOWN, "--recorded", "kept", "--only", "cifar10-0.05").out
    assert "cifar10-0.05, fedlmd: to be run again: another order of passes" in printed
    assert printed.count("to be run again") == 1


def test_a_notebook_shows_what_is_missing(recorded: Path) -> None:
    words = [word for word in SHOWN if "=" in word]
    done = unskew_package.reproduce(
        "fedlmd/table3-lda", only="cifar10-0.05", rounds=2, overrides=words, recorded="kept"
    )
    page = done._repr_html_()
    assert "not shown: column cifar10-0.05, fedntd" in page
    assert "to run what is missing: unskew reproduce" in page
    assert "mean_last10" in page


def test_rows_are_added_to_a_folder_of_an_older_version(recorded: Path, unskew: Command, pool: InProcessPool) -> None:
    """It lacks columns that came later, which stay empty."""
    lines = pd.read_csv(recorded / "accuracy.csv", keep_default_na=False, dtype=str)
    lines.drop(columns=["rules", "jobs", "test_rows", "largest_class", "superseded"]).to_csv(
        recorded / "accuracy.csv", index=False
    )
    pool.broken = set()
    assert unskew(*LDA, "--methods", "moon", "--seeds", "0", "--record", "kept").code == 0
    after = pd.read_csv(recorded / "accuracy.csv", keep_default_na=False, dtype=str).set_index("method")
    assert (after.loc["moon", "rules"], after.loc["fedavg", "rules"]) == ("paper", "")


def test_best_final_and_last_ten_are_shown_with_the_rate_of_the_largest_class(recorded: Path, unskew: Command) -> None:
    line = pd.read_csv(recorded / "accuracy.csv").query("method == 'fedavg'").iloc[0]
    words = ("--only", "cifar10-0.05", "--methods", "fedavg", "--seeds", "0", "--draws", "19940817")
    (cell,) = shown(unskew, "fedlmd/table3-lda", *words)["cells"]
    assert (cell["mean"], cell["final"], cell["mean_last10"]) == (line["best"], line["final"], line["mean_last10"])
    rate = 100 * line["largest_class"] / line["test_rows"]
    printed = unskew("reproduce", "fedlmd/table3-lda", *SHOWN, "--recorded", "kept", *words).out
    assert f"Always predicting the largest class gives {rate:.1f} %." in " ".join(printed.split())


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
def test_rows_that_match_only_in_part_are_not_shown(words: tuple[str, ...], recorded: Path, unskew: Command) -> None:
    result = unskew(*(w for w in LDA if w not in ("--device", "cpu")), "--recorded", "kept", *words)
    assert result.code == 2
    assert "no matching rows in" in result.err
    assert "its rows have preset paper; rounds 2; precision float32; table table3-lda" in result.err


def test_a_method_with_another_strength_does_not_match(recorded: Path, unskew: Command) -> None:
    """Rows with mu 0.5 do not match the recipe's mu 1."""
    curves = pd.read_csv(recorded / "curves.csv", dtype=str)
    curves.assign(setting=curves["setting"] + ";prox.mu=0.5").to_csv(recorded / "curves.csv", index=False)
    lines = pd.read_csv(recorded / "accuracy.csv", dtype=str, keep_default_na=False)
    lines.assign(setting=lines["setting"] + ";prox.mu=0.5").to_csv(recorded / "accuracy.csv", index=False)
    result = unskew("reproduce", "fedlmd/figure6", *SHOWN, "--recorded", "kept")
    assert (result.code, "no matching rows in" in result.err) == (2, True)


def test_message_has_the_full_command_for_missing_cells(recorded: Path, unskew: Command, pool: InProcessPool) -> None:
    """With preset, overrides, options and folder, so that the command runs exactly the missing cells."""
    given = ("--methods", "fedavg,fedntd", "--rounds", "3", "--preset", "released")
    for target in ("fedlmd/figure2", "fedlmd/table1"):
        result = unskew("reproduce", target, "local.lr=0.5", *given, "--recorded", "kept")
        assert result.code == 2
        command = f"unskew reproduce {target} local.lr=0.5 {' '.join(given)} --record kept"
        assert f"to record it, run: {command}" in result.err
    words = ("reproduce", "fedlmd/table1", *SHOWN, "--only", "cifar10-0.05", "--recorded", "kept")
    overrides = " ".join(SHOWN[:-2])
    command = f"unskew reproduce fedlmd/table1 {overrides} --only cifar10-0.05 --rounds 2 --record kept"
    assert f"to run what is missing: {command}" in unskew(*words).out
    assert json.loads(unskew(*words, "--json").out)["rerun"] == command


def test_the_label_figure_is_redrawn_from_its_own_table(pool: InProcessPool, unskew: Command, tmp_path: Path) -> None:
    words = ("reproduce", "fedlmd/figure2", *SHOWN)
    result = unskew(*words, "--recorded", "kept")
    assert (result.code, "shows more than accuracies by round" in result.err) == (2, True)
    assert unskew(*words, "--device", "cpu", "--record", "kept").code == 0
    drawn = {path.suffix: path.read_bytes() for path in (tmp_path / "runs/reproduce/fedlmd-figure2").iterdir()}
    assert unskew(*words, "--recorded", "kept", "--out", "again").code == 0
    assert {path.suffix: path.read_bytes() for path in (tmp_path / "again").iterdir()} == drawn
    for other in (("--preset", "released"), ("local.lr=0.5",), ("--rounds", "3"), ("partition.seed=5",)):
        assert (result := unskew(*words, *other, "--recorded", "kept")).code == 2, other
        assert "found none" in result.err
    fewer = unskew(*words, "--methods", "fedavg,fedntd", "--recorded", "kept", "--json")
    assert json.loads(fewer.out)["missing"] == ["method fedntd: not recorded"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "cpu"), "--recorded runs nothing"),
        (("--record", "kept"), "recorded already"),
        ((), "expected accuracy.csv in nowhere/fedlmd, found none; type --recorded shipped"),
    ],
)
def test_contradictory_options_are_refused(
    words: tuple[str, ...], message: str, unskew: Command, pool: InProcessPool
) -> None:
    result = unskew("reproduce", "fedlmd/table1", "--recorded", "nowhere", *words)
    assert (result.code, message in result.err) == (2, True), result.err


def test_a_broken_row_is_refused(recorded: Path, unskew: Command) -> None:
    text = (recorded / "accuracy.csv").read_text()
    best = str(pd.read_csv(recorded / "accuracy.csv", dtype=str)["best"][0])
    (recorded / "accuracy.csv").write_text(text.replace(f",{best},", ",many,"))
    result = unskew("reproduce", "fedlmd/table1", *SHOWN, "--recorded", "kept")
    assert (result.code, "cannot read the row of" in result.err) == (2, True), result.err


def test_recorded_figures_match_the_recorded_curves(unskew: Command, tmp_path: Path) -> None:
    for number, only in ((4, ()), (6, ("--only", "cifar10-0.05"))):
        words = (*only, "--preset", "released", "--recorded", RESULTS, "--out", tmp_path)
        assert unskew("reproduce", f"fedlmd/figure{number}", *words).code == 0
        name = f"figure{number}.csv"
        assert (tmp_path / name).read_text() == (RESULTS / "fedlmd" / name).read_text()


def test_shipped_rows_are_those_of_the_package_else_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wheel has them inside the package (tests/docs walks the README with one)."""
    assert results_folder("kept") == Path("kept")
    assert results_folder("shipped") == RESULTS
    package = tmp_path / "site" / "unskew"
    (package / "recorded" / "fedlmd").mkdir(parents=True)
    monkeypatch.setattr(unskew_package, "__file__", str(package / "__init__.py"))
    with pytest.raises(UserError, match="expected recorded results in this installation"):
        results_folder("shipped")
    (package / "recorded" / "fedlmd" / "accuracy.csv").touch()
    assert results_folder("shipped") == package / "recorded"
