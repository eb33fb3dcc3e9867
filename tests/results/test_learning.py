"""Runs that have not learnt: the finding says so instead of asking for more seeds."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import unskew as us
from reports.synthetic_runs import make_run
from unskew.results.finding import Finding
from unskew.results.learning import flag_unlearnt, has_collapsed, has_learnt, majority_rate, majority_sentence
from unskew.results.load_run import LoadedRun

FINDING = Finding("No clear winner: a has the highest mean.", "a reaches 20.0 %.")


def learnt(accuracy: float, collapsed: bool = False, rows: tuple[int, ...] = (30, 20, 25, 25)) -> LoadedRun:
    run = make_run("fedavg", 0, [accuracy])
    run.about["test_rows"] = list(rows)
    if collapsed:
        metrics: pd.DataFrame = run.metrics
        predicted = metrics["metric"].str.startswith("predicted/")
        metrics.loc[predicted, "value"] = [
            99.5 if name == "predicted/2" else 0.1 for name in metrics.loc[predicted, "metric"]
        ]
    return run


def test_the_largest_class_alone() -> None:
    """30 of 100 rows; two standard errors of 30 % are 9.2 points."""
    assert majority_rate(learnt(50.0)) == 30.0
    assert not has_learnt(learnt(39.1))
    assert has_learnt(learnt(39.3))
    assert majority_sentence([learnt(50.0)]) == "Always predicting the largest class gives 30.0 %."
    both = [learnt(50.0), learnt(50.0, rows=(25, 25, 25, 25))]
    assert majority_sentence(both) == "Always predicting the largest class gives 25.0 to 30.0 %."


def test_runs_of_older_versions_are_not_judged_by_it() -> None:
    run = make_run("fedavg", 0, [5.0])
    assert math.isnan(majority_rate(run))
    assert has_learnt(run)
    assert majority_sentence([run]) == ""


def test_a_model_that_predicts_one_class_has_collapsed() -> None:
    assert has_collapsed(learnt(30.0, collapsed=True))
    assert not has_collapsed(learnt(30.0))


def test_when_no_model_has_learnt_the_finding_says_so() -> None:
    result = flag_unlearnt(FINDING, {"a": [learnt(30.0, collapsed=True)], "b": [learnt(30.0, collapsed=True)]})
    assert result.headline == "No model has learnt."
    assert "The final models predict a single class." in result.detail
    assert "more seeds would not help" in result.detail
    result = flag_unlearnt(FINDING, {"a": [learnt(35.0)], "b": [learnt(30.0, collapsed=True)]})
    below = "No accuracy is clearly above 30.0 %, which the largest class alone gives"
    assert result.detail.startswith(f"{below}, and some models predict a single class. ")
    result = flag_unlearnt(FINDING, {"a": [learnt(35.0)], "b": [learnt(35.0)]})
    assert result.detail.startswith(f"{below}. ")


def test_a_method_that_has_not_learnt_is_named() -> None:
    result = flag_unlearnt(FINDING, {"a": [learnt(60.0)], "b": [learnt(30.0, collapsed=True)] * 2})
    assert result.headline == FINDING.headline
    assert result.detail.endswith("b did not learn: the final models predict a single class.")
    one_seed = {"a": [learnt(60.0)], "b": [learnt(30.0, collapsed=True), learnt(70.0)]}
    assert flag_unlearnt(FINDING, one_seed) is FINDING


@pytest.mark.parametrize(("lr", "headline"), [(1e-7, "No model has learnt."), (0.05, "")])
def test_in_a_comparison_its_table_and_page(lr: float, headline: str, tmp_path: object) -> None:
    settings = {"rounds": 3, "local": {"lr": lr, "epochs": 2}, "partition": {"name": "iid", "clients": 4}}
    experiment = us.Experiment(data="digits", model="mlp", engine={"workers": 1}, device="cpu", **settings)
    done = us.compare(experiment, methods="fedavg,fedprox", seeds=[0, 1], out=f"{tmp_path}/out")
    assert done.finding.startswith(headline)
    assert (done.finding.startswith("No model has learnt.")) == bool(headline)
    page = done.report.read_text()
    sentence = majority_sentence(done.runs)
    assert sentence.startswith("Always predicting the largest class gives 1")
    assert sentence in page
    assert sentence in (done.folder / "table.md").read_text()
    assert headline in page
