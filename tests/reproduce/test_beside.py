"""Our numbers beside a paper's, from numbers made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from unskew.report.speedup import SpeedUp, speed_up
from unskew.reproduce.compare_to_paper import PaperCell, PaperComparison, RankCorrelation, ranks
from unskew.reproduce.paper_numbers import PaperNumber
from unskew.reproduce.write_target import remarks, to_csv, to_markdown, to_rows


def cell(method: str, scores: list[float], printed: float | None, speedup: str = "", **more: object) -> PaperCell:
    paper = PaperNumber(method, "c", "s=2", printed, None, speedup) if printed is not None else None
    return PaperCell("c", method, dict(enumerate(scores)), printed=paper, **more)  # type: ignore[arg-type]


def beside(*cells: PaperCell, missing: tuple[str, ...] = ()) -> PaperComparison:
    return PaperComparison("fedlmd/table1", "fedlmd", "paper", (), cells, missing)


def test_difference_is_ours_less_the_papers_and_is_marked_beyond_three_points() -> None:
    near, far = cell("fedavg", [32.0, 34.0], 30.0), cell("fedlmd", [30.0, 36.02], 30.0)
    assert (near.difference, near.outside) == (3.0, False)
    assert far.difference == pytest.approx(3.01)
    assert far.outside
    assert near.spread == (33.0, pytest.approx(math.sqrt(2)))
    below = cell("moon", [20.0], 23.5)
    assert (below.difference, below.outside) == (-3.5, True)
    marks = [row["outside"] for row in to_rows(beside(near, far, below, cell("fedrs", [1.0], None)))]
    assert marks == [False, True, True, None]


def test_a_cell_without_numbers_has_neither_difference_nor_mark() -> None:
    gone = cell("fedavg", [], 33.0, failed=("seed 0 failed: the loss is not finite",))
    assert math.isnan(gone.difference)
    assert not gone.outside
    found = beside(gone)
    assert "| c | fedavg | failed | 0 | 33.00 | – |" in to_markdown(found)
    assert "c, fedavg: seed 0 failed: the loss is not finite" in remarks(found)


def test_rank_correlation_by_hand() -> None:
    # Ranks ours 1 2 3 4, theirs 1 2 4 3: rho = 1 - 6 (0 + 0 + 1 + 1) / (4 (16 - 1)) = 0.8.
    cells = [cell("a", [1.0], 10.0), cell("b", [2.0], 20.0), cell("c", [3.0], 40.0), cell("d", [4.0], 30.0)]
    assert ranks(cells) == RankCorrelation(pytest.approx(0.8), 4, 1, 1)
    assert ranks([*cells, cell("e", [9.0], None), cell("f", [], 9.0)]) == RankCorrelation(pytest.approx(0.8), 4, 1, 1)
    assert math.isnan(ranks(cells[:2]).rho), "two methods have no order worth a number"
    assert "c: rank correlation with the paper 0.80 over 4 methods" in remarks(beside(*cells))


def test_methods_are_ranked_on_the_repetitions_that_all_of_them_have() -> None:
    cells = [cell("a", [1.0, 99.0], 10.0), cell("b", [2.0], 20.0), cell("c", [3.0], 30.0)]
    assert ranks(cells) == RankCorrelation(pytest.approx(1.0), 3, 1, 2), "a mean over an easy draw was ranked"
    said = remarks(beside(*cells))
    assert (
        "c: rank correlation with the paper 1.00 over 3 methods, on the 1 of 2 repetitions that all of them have"
        in said
    )
    assert any("methods have different repetitions" in line for line in said)
    apart = [replace(cells[1], scores={5: 2.0}), *cells[::2]]
    assert math.isnan(ranks(apart).rho)
    assert any("no repetition" in line for line in remarks(beside(*apart)))


def test_speed_up_of_a_method_that_never_arrives_is_one_and_says_so() -> None:
    fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 40.0, 30.0, 35.0]})
    never = speed_up(pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 39.9, 20.0, 30.0]}), fedavg, 4)
    assert never == SpeedUp(1.0, False)
    found = beside(
        cell("fedlmd", [50.0], 50.0, "5.26", factors=(SpeedUp(4.0, True), SpeedUp(2.0, True))),
        cell("fednova", [12.0], 12.71, "Failed", factors=(never,)),
        cell("fedrs", [12.0], 12.71, "1.20"),
    )
    text = to_markdown(found)
    assert "| 3.00 | 5.26 |" in text
    assert "| 1.00, not reached | Failed |" in text
    assert "not reached: some repetition never has it and counts as 1" in text
    assert "| – | 1.20 |" in text
    assert [row["reached"] for row in to_rows(found)] == [True, False, None]


def test_no_column_of_speed_ups_where_the_paper_prints_none() -> None:
    assert "speed-up" not in to_markdown(beside(cell("fedavg", [1.0], 1.0)))


def test_lead_of_the_papers_method_is_paired_over_repetitions() -> None:
    own, other = cell("fedlmd", [50.0, 60.0], 50.0), cell("fedntd", [49.0, 57.0], 47.0)
    found = beside(own, other)
    lead = found.lead(other)
    assert lead is not None
    assert (lead.mean, lead.pairs) == (2.0, 2)
    assert found.lead(own) is None
    # Differences 1 and 3: standard error 1, times the 97.5 % point of Student's t with one degree, 12.7062.
    assert to_rows(found)[1]["lead_half_width"] == pytest.approx(12.7062, abs=1e-4)


def test_what_is_missing_is_listed_and_files_are_plain() -> None:
    found = beside(cell("fedavg", [33.0], 33.02), missing=("column mnist-0.1: not played",))
    assert "- missing: column mnist-0.1: not played" in to_markdown(found)
    head, line = to_csv(found).splitlines()
    assert head.startswith("column,method,dataset,model,rounds,n,mean,std,paper,")
    assert line.startswith("c,fedavg,,,,1,33.0000,,33.0200,,-0.0200,False,")
