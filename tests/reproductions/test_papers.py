"""The papers' numbers as package data: every row maps to our names, every target is in the catalogue."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from unskew import models
from unskew.base.errors import UserError
from unskew.comparisons import grid as grids
from unskew.config import recipe as recipes
from unskew.data.dataset_catalogue import ENTRIES
from unskew.protocol import method_registry
from unskew.reproductions.paper_names import our_names, read_text, skew_label, stands_for, table_rows, vocabulary
from unskew.reproductions.paper_numbers import read
from unskew.reproductions.target_catalogue import Target, find, papers, targets
from unskew.reproductions.target_plan import ReproduceOptions, make
from unskew.reproductions.target_status import status_of

TABLES = sorted(path.name for path in resources.files("unskew.papers").iterdir() if path.name.endswith(".csv"))
ROWS = {  # of the printed tables
    "fedbar_table1.csv": 64, "feddig_table1.csv": 4, "feddig_text_accuracies.csv": 17, "fedlmd_table1.csv": 4,
    "fedlmd_table2.csv": 4, "fedlmd_table3_lda.csv": 63, "fedlmd_table3_sharding.csv": 63, "fedlmd_table4.csv": 15,
    "fedlmd_table5.csv": 4, "flea_table1.csv": 198, "hfmds_table2.csv": 48, "hfmds_table3.csv": 32,
    "hfmds_table4.csv": 4,
}  # fmt: skip
LATER = {  # methods in the papers' tables that do not exist yet
    "ccvr", "fedbr", "feddig", "fedgan", "fedgen", "fmds", "hfmds",
}  # fmt: skip
RUNNABLE = [target for target in targets().values() if target.recipe]


@pytest.mark.parametrize("file", TABLES)
def test_every_row_of_a_printed_table_maps_to_our_names(file: str) -> None:
    assert len(table_rows(file)) == ROWS[file]
    for row in table_rows(file):
        names = our_names(file, row)
        assert len(names) >= len(vocabulary()["tables"][file])
        assert names.get("datasets", "digits") in {entry.name for entry in ENTRIES}
        assert names.get("models", "cnn") in models.ZOO
        for name in names.get("methods", "fedavg").split("+"):
            assert name in {*method_registry.method_names(), *method_registry.PARTS, *LATER}, row


def test_every_printed_table_is_in_the_mapping_and_in_the_catalogue() -> None:
    assert TABLES == sorted(ROWS) == sorted(vocabulary()["tables"])
    assert sorted(target.numbers for target in targets().values() if target.numbers) == TABLES


def test_printed_cells_are_read_under_our_names() -> None:
    cell = read("fedlmd_table3_lda.csv")["fedlmd", "cifar10-0.05"]
    assert (cell.setting, cell.mean, cell.std, cell.speedup) == ("alpha=0.05", 50.45, None, "5.26")
    assert read("fedlmd_table3_lda.csv")["scaffold", "cifar10-0.05"].speedup == "Failed"
    assert read("fedlmd_table2.csv")["fedls", "cifar10-0.05"].mean == 42.74
    assert read("flea_table1.csv")["fedavg", "cifar10-q3-100"].std == 1.33
    assert read("fedbar_table1.csv") == {}


def test_the_catalogue_has_every_table_and_figure_of_the_five_papers() -> None:
    counted = {paper: [0, 0] for paper in papers()}
    for target in targets().values():
        counted[target.paper][target.is_figure] += 1
    # FedLMD's Table 3 is two targets, and the numbers in FedDig's text are one.
    assert counted == {"flea": [6, 13], "fedlmd": [6, 9], "hfmds": [4, 11], "feddig": [2, 13], "fedbar": [1, 7]}


def test_status_is_computed_and_not_stored() -> None:
    assert not re.search("runnable|not yet|in part", read_text("catalogue.yaml"))
    assert status_of(find("fedlmd/table1")).word == "not yet", "the dataset folder is empty"
    assert "unskew data download cifar10" in status_of(find("fedlmd/table1")).why[0]
    assert status_of(targets()["fedlmd/figure1"]).why == ("a drawing, nothing to run",)
    assert "ccvr" in status_of(targets()["flea/table1"]).why[0]


@pytest.mark.parametrize("target", [each for each in RUNNABLE if each.numbers], ids=lambda each: each.name)
def test_recipe_has_exactly_the_cells_that_the_paper_prints(target: Target) -> None:
    section = recipes.read(str(target.recipe))[2]
    compare, printed = grids.parse_section(section, target.name), read(target.numbers)
    columns = [column for column in compare.settings if not stands_for(column)]
    assert set(printed) == {(method, column) for method in compare.methods for column in columns}
    assert compare.metric == "best"
    assert list(compare.methods)[:2] == (["fedavg", target.proposed] if ("fedavg", *[*compare.settings][:1]) in printed
                                         else ["fedlmd", "fedlmd+prox+avgm"])  # fmt: skip


@pytest.mark.parametrize("target", [each for each in RUNNABLE if each.numbers], ids=lambda each: each.name)
def test_columns_match_their_labels(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproductions.substitute_data.why_unavailable", lambda *_: "")
    printed = read(target.numbers)
    plan = make(target, ReproduceOptions(device="cpu"))
    absent = {name for why in plan.missing for name in why.methods}
    assert absent <= LATER
    for cell in plan.grid.cells:
        paper, experiment = printed[cell.method, cell.setting], cell.experiment
        assert cell.setting.startswith(f"{experiment.data.name}-")
        assert skew_label(experiment.partition) == paper.setting
        assert experiment.label == cell.method
        if target.paper == "flea":  # tests/reproductions/test_flea_recipes.py checks more
            assert (experiment.rounds, experiment.participation, experiment.partition.seed) == (100, 0.1, 1)
            continue
        assert experiment.model.name == "cnn" or cell.setting.endswith(experiment.model.name)
        assert (experiment.rounds, experiment.participation, experiment.partition.seed) == (200, 0.1, 19940817)


@pytest.mark.parametrize("preset", ["paper", "released", "fitted"])
def test_presets_differ_in_cutout_and_sampling(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.reproductions.substitute_data.why_unavailable", lambda *_: "")
    plan = make(find("fedlmd/table3-lda"), ReproduceOptions(preset=preset, device="cpu"))
    for cell in plan.grid.cells:
        augment = cell.experiment.data.augment
        assert cell.experiment.rules == ("paper" if preset == "paper" else "released")
        assert cell.experiment.local.epochs == (3 if preset == "fitted" else 5)
        assert (augment.crop, augment.flip) == (4, True)
        # The released code uses no cutout on CINIC-10.
        assert augment.cutout == (0 if preset == "paper" or cell.experiment.data.name == "cinic10" else 16)


def test_unknown_and_unrunnable_targets_are_refused() -> None:
    with pytest.raises(UserError, match=r"did you mean fedlmd/table.*Expected a table or figure"):
        find("fedlmd/table33")
    with pytest.raises(UserError, match="it is a drawing"):
        find("fedlmd/figure1")
    with pytest.raises(UserError, match="no recipe yet"):
        find("fedbar/table1")


def test_stand_ins_are_used_only_for_unavailable_data(monkeypatch: pytest.MonkeyPatch) -> None:
    have = {"cifar10", "hapt"}
    monkeypatch.setattr(
        "unskew.reproductions.substitute_data.why_unavailable", lambda name, _: "" if name in have else f"no {name}"
    )
    table = find("flea/table1")
    plan = make(table, ReproduceOptions(device="cpu", methods=("fedavg",), seeds="0"))
    names = [cell.experiment.data.name for cell in plan.grid.cells]
    assert (names.count("cifar10"), names.count("hapt"), len(names)) == (6, 6, 12)
    reason = (
        "columns ucihar-q2-100, ucihar-0.3-100, ucihar-0.1-100, ucihar-q2-50, ucihar-0.3-50, ucihar-0.1-50: no ucihar; "
    )
    assert any(
        str(why).startswith(f"{reason}used instead, without the paper's numbers: hapt-q2-100,") for why in plan.missing
    )
    assert not any("urbansound8k_mel" in str(why) for why in plan.missing), "an unavailable stand-in was listed"
    papers = {cell.setting: plan.columns[cell.setting].paper.data.name for cell in plan.grid.cells}
    assert papers["hapt-q2-100"] == "ucihar"
    assert status_of(table).word == "in part"
    assert status_of(find("flea/figure7")).word == "in part"
    have.add("ucihar")
    names = [cell.experiment.data.name for cell in make(table, ReproduceOptions(device="cpu", seeds="0")).grid.cells]
    assert "hapt" not in names
    named = make(table, ReproduceOptions(device="cpu", only=("hapt-q2-100",), methods=("fedavg",), seeds="0"))
    assert [cell.experiment.data.name for cell in named.grid.cells] == ["hapt"]


@pytest.mark.parametrize("target", [each for each in RUNNABLE if each.paper == "flea"], ids=lambda each: each.name)
def test_a_stand_in_column_differs_from_the_papers_only_in_data_and_clients(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = grids.parse_section(recipes.read(str(target.recipe))[2], target.name).settings
    for label, changes in settings.items():
        if original := settings.get(stands_for(label)):
            name = vocabulary()["stand_ins"][original["data.name"]]
            assert changes | {"partition.clients": 0} == original | {"data.name": name, "partition.clients": 0}, label
