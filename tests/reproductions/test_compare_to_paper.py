"""The comparison with a paper, on hand-made numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd
import pytest

from unskew.reports.speedup import SpeedUp, paper_speed_up
from unskew.reproductions.compare_to_paper import PaperCell, PaperComparison, RankCorrelation, rank_correlation
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.paper_numbers import PaperNumber
from unskew.reproductions.write_target import remarks, to_csv, to_markdown, to_rows


def cell(method: str, scores: list[float], printed: float | None, speedup: str = "", **more: object) -> PaperCell:
    paper = PaperNumber(method, "c", "s=2", printed, None, speedup) if printed is not None else None
    return PaperCell("c", method, dict(enumerate(scores)), printed=paper, **more)  # type: ignore[arg-type]


def comparison(*cells: PaperCell, missing: tuple[MissingCells, ...] = ()) -> PaperComparison:
    return PaperComparison("fedlmd/table1", "fedlmd", "paper", (), cells, missing)


def test_difference_is_our_mean_minus_the_papers_and_marked_above_three_points() -> None:
    near, far = cell("fedavg", [32.0, 34.0], 30.0), cell("fedlmd", [30.0, 36.02], 30.0)
    assert (near.difference, near.outside) == (3.0, False)
    assert far.difference == pytest.approx(3.01)
    assert far.outside
    assert near.spread == (33.0, pytest.approx(math.sqrt(2)))
    below = cell("moon", [20.0], 23.5)
    assert (below.difference, below.outside) == (-3.5, True)
    line_styles = [row["outside"] for row in to_rows(comparison(near, far, below, cell("fedrs", [1.0], None)))]
    assert line_styles == [False, True, True, None]


def test_a_cell_without_scores_has_neither_difference_nor_mark() -> None:
    failed_cell = cell("fedavg", [], 33.0, failed=("seed 0 failed: the loss is not finite",))
    assert math.isnan(failed_cell.difference)
    assert not failed_cell.outside
    table = comparison(failed_cell)
    assert "| c | fedavg | failed | – | – | 0 | 33.00 | – |" in to_markdown(table)
    assert "c, fedavg: seed 0 failed: the loss is not finite" in remarks(table)


def test_rank_correlation_by_hand() -> None:
    # Our ranks 1 2 3 4, the paper's 1 2 4 3: rho = 1 - 6 (0 + 0 + 1 + 1) / (4 (16 - 1)) = 0.8.
    cells = [cell("a", [1.0], 10.0), cell("b", [2.0], 20.0), cell("c", [3.0], 40.0), cell("d", [4.0], 30.0)]
    assert rank_correlation(cells) == RankCorrelation(pytest.approx(0.8), 4, 1, 1)
    assert rank_correlation([*cells, cell("e", [9.0], None), cell("f", [], 9.0)]) == RankCorrelation(
        pytest.approx(0.8), 4, 1, 1
    )
    assert math.isnan(rank_correlation(cells[:2]).rho), "two methods are too few for a rank correlation"
    assert "c: rank correlation with the paper 0.80 over 4 methods" in remarks(comparison(*cells))


def test_no_rank_correlation_where_no_model_has_learnt() -> None:
    """An order of models that all guess means nothing, however well it agrees."""
    values = {"a": 10.1, "b": 10.2, "c": 10.3}
    unlearnt = [cell(name, [value], value, learnt=False) for name, value in values.items()]
    assert math.isnan(rank_correlation(unlearnt).rho)
    (remark,) = remarks(comparison(*unlearnt))
    assert "no rank correlation" in remark
    assert "always predicting the largest class" in remark
    one_learnt = [*unlearnt[:2], cell("c", [50.0], 10.3)]
    assert rank_correlation(one_learnt).rho == pytest.approx(1.0)


def test_methods_are_ranked_on_the_repetitions_that_all_of_them_have() -> None:
    cells = [cell("a", [1.0, 99.0], 10.0), cell("b", [2.0], 20.0), cell("c", [3.0], 30.0)]
    assert rank_correlation(cells) == RankCorrelation(pytest.approx(1.0), 3, 1, 2), (
        "the mean over an easier draw was ranked"
    )
    result = remarks(comparison(*cells))
    assert (
        "c: rank correlation with the paper 1.00 over 3 methods, on the 1 of 2 repetitions that all of them have"
        in result
    )
    assert any("methods have different repetitions" in line for line in result)
    apart = [replace(cells[1], scores={5: 2.0}), *cells[::2]]
    assert math.isnan(rank_correlation(apart).rho)
    assert any("no repetition" in line for line in remarks(comparison(*apart)))


def test_speed_up_of_a_method_that_never_reaches_fedavgs_best_is_one_and_flagged() -> None:
    fedavg = pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 40.0, 30.0, 35.0]})
    never = paper_speed_up(pd.DataFrame({"round": [1, 2, 3, 4], "value": [10.0, 39.9, 20.0, 30.0]}), fedavg, 4)
    assert never == SpeedUp(1.0, False)
    table = comparison(
        cell("fedlmd", [50.0], 50.0, "5.26", speedups=(SpeedUp(4.0, True), SpeedUp(2.0, True))),
        cell("fednova", [12.0], 12.71, "Failed", speedups=(never,)),
        cell("fedrs", [12.0], 12.71, "1.20"),
    )
    text = to_markdown(table)
    assert "| 3.00 | 5.26 |" in text
    assert "| 1.00 † | Failed |" in text
    assert "†: some repetition never reaches it and counts as 1" in text
    assert "| – | 1.20 |" in text
    assert [row["reached"] for row in to_rows(table)] == [True, False, None]


def test_no_speed_up_column_if_the_paper_prints_none() -> None:
    assert "speed-up" not in to_markdown(comparison(cell("fedavg", [1.0], 1.0)))


def test_lead_of_the_papers_method_is_paired_over_repetitions() -> None:
    own, other = cell("fedlmd", [50.0, 60.0], 50.0), cell("fedntd", [49.0, 57.0], 47.0)
    table = comparison(own, other)
    lead = table.lead(other)
    assert lead is not None
    assert (lead.mean, lead.pairs) == (2.0, 2)
    assert table.lead(own) is None
    # Differences 1 and 3: standard error 1, times the 97.5 % point of Student's t with one degree, 12.7062.
    assert to_rows(table)[1]["lead_half_width"] == pytest.approx(12.7062, abs=1e-4)


def test_missing_columns_are_listed_and_csv_has_plain_numbers() -> None:
    table = comparison(cell("fedavg", [33.0], 33.02), missing=(MissingCells("not requested", ("mnist-0.1",)),))
    assert "| mnist-0.1 | all | not requested |" in to_markdown(table)
    head, line = to_csv(table).splitlines()
    assert head.startswith("column,method,dataset,model,rounds,n,mean,std,final,mean_last10,paper,")
    assert line.startswith("c,fedavg,,,,1,33.0000,,,,33.0200,,-0.0200,False,")
