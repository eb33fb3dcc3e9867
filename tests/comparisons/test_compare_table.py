"""The table of a comparison, compared with numbers worked out by hand, and its formats."""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from unskew.comparisons import comparison_table as tables
from unskew.comparisons import grid as grids
from unskew.comparisons import write_comparison
from unskew.comparisons.comparison_table import ComparisonRow, ComparisonTable
from unskew.comparisons.finding_per_setting import finding_text, findings_text
from unskew.comparisons.select_on_validation import SelectedRound, choose_candidate, choose_round

ROUND = ("best", "final", "mean_last10")


def row(
    method: str, *values: float, setting: str = "", failed: dict[int, str] | None = None, notes: tuple = ()
) -> ComparisonRow:
    """A row with the same score for every measure; a value per seed."""
    scores = {seed: value for seed, value in enumerate(values) if seed not in (failed or {})}
    return ComparisonRow(setting, method, method, dict.fromkeys(ROUND, scores), failed or {}, notes)


def table(*rows: ComparisonRow, seeds: int = 2, caption: str = "Caption.") -> ComparisonTable:
    return ComparisonTable("grid", "mean_last10", ROUND, tuple(range(seeds)), rows, caption)


def test_means_spreads_and_differences_match_the_calculation_by_hand() -> None:
    """moon - fedavg is 2 and 4: mean 3, spread sqrt(2), interval 3 +- 12.7062 * sqrt(2) / sqrt(2)."""
    comparison = table(row("moon", 62.0, 66.0), row("fedavg", 60.0, 62.0))
    lines = list(csv.DictReader(write_comparison.to_csv(comparison).splitlines()))
    assert [line["method"] for line in lines] == ["moon", "fedavg"]
    assert (lines[0]["best_mean"], lines[0]["best_std"]) == ("64.0000", f"{math.sqrt(8):.4f}")
    assert (lines[1]["mean_last10_mean"], lines[1]["final_std"]) == ("61.0000", f"{math.sqrt(2):.4f}")
    assert [lines[0][key] for key in ("difference", "low", "high")] == ["3.0000", "-9.7062", "15.7062"]
    assert [lines[1][key] for key in ("difference", "low", "high")] == ["", "", ""]


def test_without_fedavg_the_first_method_is_the_baseline() -> None:
    assert table(row("moon", 1, 2), row("fedprox", 3, 4)).baseline("").label == "moon"
    assert table(row("moon", 1, 2), row("fedavg", 3, 4)).baseline("").label == "fedavg"


def test_differences_stay_within_a_setting() -> None:
    rows = [
        row(m, v, v + 1, setting=s) for s, m, v in (("a", "fedavg", 10.0), ("b", "fedavg", 50.0), ("b", "moon", 55))
    ]
    gap = table(*rows).gap(rows[2])
    assert gap
    assert gap.mean == 5


def test_one_seed_has_no_spread_and_no_interval() -> None:
    text = write_comparison.to_markdown(table(row("fedavg", 60.0), row("moon", 61.5), seeds=1))
    assert "| moon | **61.50** | **61.50** | **61.50** | +1.50 (one seed) |" in text
    assert "One seed is not enough" in text


def test_the_best_mean_of_each_setting_is_bold() -> None:
    rows = [row(m, v, v, setting=s) for s, m, v in (("a", "x", 1), ("a", "y", 2), ("b", "x", 9), ("b", "y", 8))]
    lines = write_comparison.to_latex(table(*rows)).splitlines()
    assert [("\\textbf" in line) for line in lines if " & " in line][1:] == [False, True, True, False]


def test_a_row_with_a_failed_seed_is_excluded_from_the_finding() -> None:
    comparison = table(row("a", 50.0, 51.0), row("b", 99.0, 0.0, failed={1: "it broke"}), row("c", 10.0, 11.1))
    assert not comparison.leads(comparison.rows[1], "best")
    assert comparison.leads(comparison.rows[0], "best")
    assert "b is excluded because 1 of 2 seeds failed." in finding_text(comparison, "")
    assert finding_text(comparison, "").startswith("a is clearly ahead")
    assert "seed 1 failed: it broke" in write_comparison.to_csv(comparison)


def test_a_method_that_failed_with_every_seed_is_marked() -> None:
    text = write_comparison.to_markdown(table(row("a", 1.0, 2.0), row("b", failed={0: "no | memory", 1: "x"})))
    assert "| b | failed | failed | failed | - | seed 0 failed: no \\| memory; seed 1 failed: x |" in text


def test_the_finding_names_the_methods_within_the_interval() -> None:
    comparison = table(
        row("fedavg", 60.0, 64.0), row("moon", 63.0, 63.4), row("fedprox", 61.0, 62.0), row("bad", 13.0, 13.5)
    )
    assert finding_text(comparison, "") == (
        "No clear winner: moon has the highest mean, but fedavg and fedprox may be as good. moon reaches 63.2 % "
        "(mean of the last ten rounds); its paired lead over fedavg is +1.2 points, with an interval wider than the "
        "scale over 2 seeds (95 %, Bonferroni-corrected for 6 pairs of methods). It is clearly ahead of bad only. More "
        "seeds would narrow the intervals; until then fedavg, the simplest, is not ruled out."
    )


def test_the_finding_reports_a_clear_lead() -> None:
    comparison = table(row("fedavg", 60.0, 61.0, 62.0), row("moon", 70.0, 71.1, 72.0), seeds=3)
    assert findings_text(comparison) == (
        "moon is clearly ahead, by 10.0 points. moon reaches 71.0 % (mean of the last ten rounds); its paired lead "
        "over fedavg is +10.0 points, interval +9.9 to +10.2 over 3 seeds (95 % interval)."
    )


def test_the_finding_has_a_line_per_setting() -> None:
    rows = [row("a", 1.0, 2.0, setting=s) for s in ("s=2", "s=5")]
    assert [line.partition(":")[0] for line in findings_text(table(*rows)).splitlines()] == ["s=2", "s=5"]


def test_latex_escapes_special_characters() -> None:
    strange = r"a_b & 100% #1 $x {y} ~z ^w \v <u|t>"
    text = write_comparison.to_latex(table(row(strange, 1.0, 2.0, setting="50 %_")))
    assert (
        r"a\_b \& 100\% \#1 \$x \{y\} \textasciitilde{}z \textasciicircum{}w \textbackslash{}v "
        r"\textless{}u\textbar{}t\textgreater{}"
    ) in text
    assert r"50 \%\_ & " in text
    assert r"1.50 $\pm$ 0.71" in text
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {line.replace(r"\&", "").count("&") for line in rows} == {5}


def metrics(validation: list[float], test: list[float]) -> pd.DataFrame:
    """The rows of a run; round 0 is the untrained model."""
    values = [(r, s, v) for s, vs in (("validation", validation), ("test", test)) for r, v in enumerate(vs)]
    more = [(1, "test", "loss", 99.0), (1, "validation", "accuracy/0", 99.0)]
    rows = [(r, s, "accuracy", v) for r, s, v in values] + more
    frame = pd.DataFrame(rows, columns=["round", "split", "metric", "value"])
    return frame.assign(run="x", method="m", seed=0, who="server").sample(frac=1, random_state=0)


def test_the_round_has_the_best_validation_and_not_the_best_test_accuracy() -> None:
    assert choose_round(metrics([99, 50, 70, 70, 60], [99, 90, 40, 45, 80])) == SelectedRound(2, 70, 40)


def test_the_candidate_has_the_best_validation_and_not_the_best_test_accuracy() -> None:
    """Candidate b has by far the best test accuracy in every round, and the worse validation accuracy."""
    a = {seed: choose_round(metrics([0, 60, 61 + seed], [0, 30, 31])) for seed in (0, 1)}
    b = {seed: choose_round(metrics([0, 60, 60 + seed], [0, 95, 99])) for seed in (0, 1)}
    assert choose_candidate({"b": b, "a": a}) == "a"
    assert [choice.test for choice in a.values()] == [31, 31]


def test_a_selected_row_is_the_candidate_with_the_best_validation_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two values of mu, 0.1 is better on the held-out rows and 1 on the test rows."""
    options = {"methods": ["fedavg", "fedprox"], "seeds": "0-1", "select": "validation"}
    tuned = options | {"tune": {"fedprox": {"method.prox.mu": [1, 0.1]}}}
    grid = grids.load("quick", [], tuned)
    curves = {
        "fedavg": metrics([0, 40, 50], [0, 41, 42]),
        "fedprox mu=1": metrics([0, 60, 55], [0, 90, 99]),
        "fedprox mu=0.1": metrics([0, 60, 70], [0, 80, 33]),
    }
    runs = {cell.name: SimpleNamespace(about={}, test_set=(0, 0), metrics=curves[cell.label]) for cell in grid.cells}
    monkeypatch.setattr("unskew.comparisons.comparison_table.load", lambda folder: runs[folder.name])
    comparison = tables.read_table(grid, Path("out"), {})
    assert [row.label for row in comparison.rows] == ["fedavg", "fedprox mu=0.1"]
    assert comparison.rows[1].scores == {"selected": {0: 33, 1: 33}, "validation": {0: 70, 1: 70}}
    assert comparison.rows[1].notes == ("best of 2 candidates", "rounds 2, 2")
    assert "fedavg reaches 42.0 % (test accuracy in the round that validation chose)" in findings_text(comparison)
    assert (
        "(10 % of the training set); test accuracy is reported only at the selected round"
        in write_comparison.to_markdown(comparison)
    )


def test_refused_messages_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grids.load("quick", [], {"methods": ["fedavg"], "seeds": "3"})
    rows = metrics([], [0, 10.0])
    rows.loc[rows["metric"] == "loss", "metric"] = "dropped"
    run = SimpleNamespace(
        about={}, test_set=(0, 0), metrics=rows, summary=SimpleNamespace(best=1.0, final=2.0, mean_last10=3.0)
    )
    monkeypatch.setattr("unskew.comparisons.comparison_table.load", lambda folder: run)
    (row,) = tables.read_table(grid, Path("out"), {}).rows
    assert row.notes == ("seed 3: 1 reply was refused",)
    assert row.scores == {"best": {3: 1.0}, "final": {3: 2.0}, "mean_last10": {3: 3.0}}


def test_a_candidate_with_a_missing_seed_is_not_chosen() -> None:
    complete, partial = {0: SelectedRound(1, 50, 0), 1: SelectedRound(1, 50, 0)}, {1: SelectedRound(1, 90, 0)}
    assert choose_candidate({"partial": partial, "complete": complete}) == "complete"
    assert choose_candidate({"none": {}, "nothing": {}}) == "none"


@pytest.mark.parametrize(
    "write_format", [write_comparison.to_csv, write_comparison.to_markdown, write_comparison.to_latex]
)
def test_every_format_names_every_row(write_format) -> None:
    text = write_format(table(row("fedavg", 1.0, 2.0), row("moon", 3.0, 4.0, notes=("hello",))))
    for word in ("fedavg", "moon", "hello"):
        assert word in text


def test_a_failure_of_many_lines_is_one_line_of_the_table() -> None:
    grid = grids.load("quick", [], {"methods": ["fedavg"], "seeds": "3"})
    comparison = tables.read_table(grid, Path("out"), {grid.cells[0].name: "first\n  second"})
    assert comparison.rows[0].failed == {3: "first second"}
    assert sum(line.startswith("|") for line in write_comparison.to_markdown(comparison).splitlines()) == 3


def test_the_title_of_differences_is_right_for_every_setting() -> None:
    def chosen(setting: str, rate: float) -> ComparisonRow:
        return replace(row("fedavg", 1.0, 2.0, setting=setting), label=f"fedavg lr={rate}")

    comparison = table(chosen("a", 0.1), chosen("b", 0.2), row("moon", 3.0, 4.0, setting="b"))
    assert "method − fedavg, 95 % CI" in write_comparison.to_markdown(comparison)
    assert "method − fedavg lr=0.1, 95 % CI" in write_comparison.to_markdown(table(chosen("a", 0.1)))


def test_the_baseline_has_scores_if_any_row_has() -> None:
    comparison = table(row("fedavg", failed={0: "x", 1: "x"}), row("moon", 3.0, 4.0), row("fedprox", 4.0, 6.0))
    assert comparison.baseline("").label == "moon"
    assert comparison.gap(comparison.rows[2]).mean == 1.5


@pytest.mark.parametrize("character", ["[", "*"])
def test_no_latex_row_begins_with_a_character_that_the_row_before_would_parse(character: str) -> None:
    lines = write_comparison.to_latex(table(row(f"{character}1] mine", 1.0, 2.0), row("b", 1.0, 2.0))).splitlines()
    assert any(line.startswith(f"{{}}{character}1] mine & ") for line in lines)
    assert any(line.startswith("b & ") for line in lines)


def test_files_are_the_same_under_any_locale(tmp_path: Path) -> None:
    """A table has a plus-minus sign, which the old C locale cannot write."""
    program = """
import sys
from pathlib import Path
from unskew.comparisons.comparison_table import ComparisonRow, ComparisonTable
from unskew.comparisons.write_comparison import write
row = ComparisonRow("\\u591c", "fedavg", "fedavg", {"best": {0: 1.0, 1: 2.0}}, {})
write(ComparisonTable("grid", "best", ("best",), (0, 1), (row,), "Caption."), Path(sys.argv[1]))
"""
    for name in ("c", "utf"):
        (tmp_path / name).mkdir()
    old = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", program, str(tmp_path / "c")]
    done = subprocess.run(command, env=old, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    night = ComparisonRow("\u591c", "fedavg", "fedavg", {"best": {0: 1.0, 1: 2.0}}, {})
    write_comparison.write(ComparisonTable("grid", "best", ("best",), (0, 1), (night,), "Caption."), tmp_path / "utf")
    for name in ("table.csv", "table.md", "table.tex", "finding.txt"):
        assert (tmp_path / "c" / name).read_bytes() == (tmp_path / "utf" / name).read_bytes()
    assert "\u591c" in (tmp_path / "c" / "table.md").read_text(encoding="utf-8")
