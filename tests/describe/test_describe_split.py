"""`unskew partition`: labels per client and per cohort, and the work of a round; it builds no model."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import unskew as us
from runner.conftest import Command
from unskew.data import label_skew
from unskew.describe import describe_split, terminal_plot
from unskew.runner.prepare_run import prepare


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a network is built."""
    monkeypatch.setattr("unskew.models.build", lambda *a, **k: pytest.fail("a model was built"))


@pytest.mark.usefixtures("no_model")
def test_output_has_header_heat_map_work_and_warning(unskew: Command) -> None:
    result = unskew("partition", "quick", "participation=0.1")
    assert (result.code, result.err) == (0, "")
    for words in ("20 clients, 1438 rows", "client 19", "▓▓", "70 rows", "a round    2 of 20 clients", "25 steps"):
        assert words in result.out, words
    assert re.search(r"warning    a round's 2 participants hold \d\.\d of 10 classes", result.out)


def test_no_warning_when_every_round_sees_every_class(unskew: Command) -> None:
    assert "warning" not in unskew("partition", "quick", "partition=iid").out


def test_json_contains_the_summary(unskew: Command) -> None:
    result = unskew("partition", "quick", "--json")
    assert result.out.count("\n") == 1
    numbers = json.loads(result.out)
    _, experiment = us.load_recipe("quick")
    run = prepare(experiment)
    assert {key: numbers[key] for key in label_skew.summary(run.split.counts)} == label_skew.summary(run.split.counts)
    assert numbers["steps_longest"] == 5 * -(-73 // 16)


def test_csv_has_the_counts_of_a_run(unskew: Command, tmp_path: Path) -> None:
    assert unskew("partition", "quick", "seed=5", "--csv", tmp_path / "new" / "who.csv").code == 0
    table = pd.read_csv(tmp_path / "new" / "who.csv")
    _, experiment = us.load_recipe("quick", ["seed=5"])
    assert table["client"].tolist() == list(range(20))
    assert (table.drop(columns="client").to_numpy() == prepare(experiment).split.counts).all()


@pytest.mark.parametrize(("name", "first"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml")])
def test_figure_is_written(name: str, first: bytes, unskew: Command, tmp_path: Path) -> None:
    assert unskew("partition", "quick", "--out", tmp_path / name).code == 0
    assert (tmp_path / name).read_bytes().startswith(first)


def test_figure_with_an_unknown_suffix_is_refused_before_data_are_read(
    unskew: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unskew.data.load", lambda *a, **k: pytest.fail("data were loaded"))
    result = unskew("partition", "quick", "--out", "a.gif")
    assert result.code == 2
    assert ".png, .svg" in result.err


@pytest.mark.parametrize("option", ["--csv", "--out"])
def test_an_unwritable_path_is_refused(option: str, unskew: Command, tmp_path: Path) -> None:
    (tmp_path / "who.png").mkdir()
    result = unskew("partition", "quick", option, tmp_path / "who.png")
    assert result.code == 2
    assert "who.png: cannot be written (Is a directory)" in result.err


def test_unknown_key_is_refused(unskew: Command) -> None:
    result = unskew("partition", "quick", "partition.client=3")
    assert result.code == 2
    assert "did you mean partition.clients?" in result.err


def test_expected_share_of_classes_against_all_cohorts() -> None:
    """Six clients with four classes; every cohort is enumerated."""
    counts = np.array([[5, 0, 0, 0], [0, 3, 0, 0], [1, 1, 0, 0], [0, 0, 2, 0], [0, 0, 9, 0], [4, 0, 0, 7]])
    for size in (1, 2, 3, 6):
        cohorts = list(combinations(range(6), size))
        want = np.mean([(counts[list(cohort)].sum(axis=0) > 0).mean() for cohort in cohorts])
        cohort = describe_split._cohorts(counts, [counts[list(cohorts[0])]], 6, size)
        assert cohort.expected == pytest.approx(want)


def test_lowest_share_names_its_round() -> None:
    counts = np.array([[1, 1, 0], [0, 1, 1], [0, 1, 0]])
    cohort = describe_split._cohorts(counts, [counts[k] for k in ([0, 1], [2], [0])], 3, 1)
    assert (cohort.lowest, cohort.lowest_round) == (pytest.approx(1 / 3), 2)


def test_padding_of_the_stacked_engine() -> None:
    """Sizes 5, 5, 5 in batches of one need no padding; seventy numbers of steps share 24 widths."""
    from unskew.protocol.work import Work

    work = Work(batch=1, lr=0.1)
    even = describe_split._steps(np.full((3, 1), 5), [np.full((3, 1), 5)], work)
    ragged = describe_split._steps(np.arange(1, 71)[:, None], [np.arange(1, 71)[:, None]], work)
    assert (even.padding, even.longest, even.total) == (0, 5, 15)
    assert 0 < ragged.padding < 0.05
    filled = describe_split._steps(np.full((3, 1), 5), [np.full((3, 1), 5)], replace(work, batch=4))
    assert filled.padding == pytest.approx(3 / 8)  # two batches of four for five rows


WARN = {
    "no client holds classes [2]": [[3, 3, 0], [3, 3, 0]],
    "dominates the average": [[90, 1, 1], [1, 1, 1], [1, 1, 1]],
    "single row": [[1, 0, 0], [4, 4, 4]],
}


@pytest.mark.parametrize("words", WARN)
def test_unworkable_splits_give_warnings(words: str) -> None:
    counts = np.array(WARN[words])
    cohorts = describe_split._cohorts(counts, [counts], len(counts), len(counts))
    assert any(words in line for line in describe_split.warnings(counts, cohorts))


def test_a_thousand_clients_take_few_lines_and_keep_their_skew() -> None:
    """Each client holds one class, so grouping neighbours by number would hide the skew."""
    counts = np.zeros((1000, 10), dtype=np.int64)
    counts[np.arange(1000), np.arange(1000) % 10] = 5 + np.arange(1000) % 7
    lines = [line.plain for line in terminal_plot.heat_map(counts)]
    assert len(lines) <= terminal_plot.MAX_LINES + 2
    assert all(line.count("██ ") >= 1 and "░" not in line for line in lines[1:-1])
    assert all(line.split("  ")[0].strip()[0].isdigit() for line in lines[1:-1])
    assert sum(int(line.split()[0]) for line in lines[1:-1]) == 1000


@pytest.mark.parametrize("classes", [2, 20, 21, 41, 100, 300])
def test_columns_are_aligned(classes: int) -> None:
    counts = np.ones((3, classes), dtype=np.int64)
    header, *lines = [line.plain for line in terminal_plot.heat_map(counts)[:-1]]
    ends = {line.index("███") for line in lines}
    assert ends == {header.index("rows")}
    assert len(header) < 140


SHADED = np.array([[80, 15, 4, 1, 0], [50, 30, 20, 0, 0]])


def test_shades_are_readable_without_colour() -> None:
    _, first, second, *_ = [line.plain.partition(" ")[2][2:] for line in terminal_plot.heat_map(SHADED)]
    assert first.split()[:4] == ["██", "░░", "··", "··"]
    assert second.split()[:3] == ["▓▓", "▒▒", "░░"]


def test_empty_clients_are_grouped_on_their_own_line() -> None:
    counts = np.zeros((60, 2), dtype=np.int64)
    counts[:50, 1] = 3
    lines = [line.plain for line in terminal_plot.heat_map(counts)]
    assert sum("with most of 1" in line for line in lines) == len(lines) - 3
    assert lines[-2].strip().startswith("10 empty")


def test_histogram_counts_every_client() -> None:
    sizes = np.array([3, 3, 4, 50, 51, 120])
    lines = terminal_plot.histogram(sizes)
    assert sum(int(line.split()[-2]) for line in lines) == 6
    assert terminal_plot.histogram(np.array([7, 7])) == ["all 2 clients have 7 rows"]
