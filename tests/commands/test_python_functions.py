"""`us.compare`, `us.report`, `us.audit` and `us.reproduce` give what the commands give, and show themselves."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import nn

import unskew as us
from runner import toys
from runner.conftest import Command
from unskew.audits.audit_runs import AuditResult
from unskew.comparisons.compare_methods import Comparison
from unskew.reproductions.reproduce_target import Reproduction

SMALL = ("rounds=1", "local.epochs=1", "model=mlp")
ANSWERS = ("table.csv", "table.md", "table.tex", "finding.txt")


def experiment(**changes: object) -> us.Experiment:
    return us.Experiment(**toys.settings(data="given", **changes))


def network(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(toys.WIDTH, width), nn.ReLU(), nn.Linear(width, toys.CLASSES))


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return us.compare(
        experiment(rounds=2),
        methods=["fedavg", {"fedprox": {"mu": 0.5}}],
        seeds=[0, 1],
        data=toys.dataset(),
        model=network(),
        out=tmp_path_factory.mktemp("compared") / "out",
        show=False,
    )


def test_compare_writes_the_files_of_the_command(tmp_path: Path, unskew: Command) -> None:
    words = ("compare", "quick", *SMALL, "--methods", "fedavg,fedprox", "--seeds", "0-1", "--jobs", "1")
    assert unskew(*words, "--out", tmp_path / "command").code == 0
    done = us.compare(
        "quick", methods=["fedavg", "fedprox"], seeds=[0, 1], overrides=SMALL, jobs=1, out=tmp_path / "python"
    )
    for name in ANSWERS:
        assert (tmp_path / "command" / name).read_bytes() == (done.folder / name).read_bytes(), name
    assert done.failed == {}
    assert done.report.is_file()
    assert done.finding == (done.folder / "finding.txt").read_text().strip()
    pd.testing.assert_frame_equal(done.frame, pd.read_csv(done.folder / "table.csv"))


def test_compare_takes_data_and_a_network_from_python(compared: Comparison) -> None:
    assert [row.label for row in compared.table.rows] == ["fedavg", "fedprox"]
    assert len(compared.runs) == 4
    assert {run.config.model.name for run in compared.runs} == {"custom"}
    assert not any(row.failed for row in compared.table.rows)


def test_a_comparison_shows_its_table(compared: Comparison) -> None:
    for text in (repr(compared), compared._repr_html_()):
        assert "fedprox" in text
        assert compared.finding.splitlines()[0][:30] in text
        assert "report.html" in text
    assert "<table" in compared._repr_html_()


def test_compare_again_reads_the_finished_runs(compared: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unskew.runner.run_experiment.prepare", lambda *a, **k: pytest.fail("a run was repeated"))
    again = us.compare(
        experiment(rounds=2),
        methods=["fedavg", {"fedprox": {"mu": 0.5}}],
        seeds="0-1",
        data=toys.dataset(),
        model=network(),
        out=compared.folder,
    )
    pd.testing.assert_frame_equal(again.frame, compared.frame)


@pytest.mark.parametrize("changed", ["data", "model"])
def test_finished_runs_refuse_other_inputs(changed: str, compared: Comparison, tmp_path: Path) -> None:
    """Their settings are equal. Initial weights may differ: a cell run again draws new ones."""
    data, net = toys.dataset(), network()
    if changed == "data":
        data = us.from_arrays(data.train.x.numpy() + 1, data.train.y.numpy(), test=0.2)
    else:
        net = network(width=5)
    with pytest.raises(us.UserError, match=f"expected the {changed} and .* that this finished run was started with"):
        us.compare(experiment(rounds=2), methods=["fedavg"], seeds=[0], data=data, model=net, out=compared.folder)
    us.run(experiment(), data=toys.dataset(), model=network(), out=tmp_path / "run")
    with pytest.raises(us.UserError, match=f"expected the {changed} and .* that this finished run"):
        us.run(experiment(), data=data, model=net, out=tmp_path / "run")


def test_finished_runs_refuse_other_layers_and_test_labels(tmp_path: Path) -> None:
    """Names, shapes and training rows are the same."""
    us.run(experiment(), data=toys.dataset(), model=network(), out=tmp_path / "run")
    sigmoid = nn.Sequential(nn.Linear(toys.WIDTH, 4), nn.Sigmoid(), nn.Linear(4, toys.CLASSES))
    with pytest.raises(us.UserError, match="expected the network that this finished run"):
        us.run(experiment(), data=toys.dataset(), model=sigmoid, out=tmp_path / "run")
    data = toys.dataset()
    data.test.y[:] = 0
    with pytest.raises(us.UserError, match="expected the test rows that this finished run"):
        us.run(experiment(), data=data, model=network(), out=tmp_path / "run")


def test_a_cell_whose_code_fails_is_a_failed_run(tmp_path: Path) -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if len(x) not in (2, 12):  # the check before the first round, and the test rows
                raise ZeroDivisionError("of the user")
            return x

    net = nn.Sequential(Fails(), *network())
    with pytest.raises(us.UserError, match="every run failed:\nZeroDivisionError: of the user"):
        us.compare(experiment(), methods="fedavg", seeds=0, data=toys.dataset(), model=net, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: us.report([]), "runs: expected at least one run"),
        (lambda: us.audit([]), "runs: expected at least one run"),
        (lambda: us.audit("x", membership="foo"), "membership: found 'foo'; expected one of none, loss, shadow"),
        (lambda: us.audit("x", restarts=0), "restarts: expected at least 1, found 0"),
        (lambda: us.compare("quick", methods=5), "methods: expected a list"),
        (lambda: us.compare("quick", methods="fedavg", seeds=1.5), "seeds: expected whole numbers"),
        (lambda: us.compare("quick", methods="fedavg", jobs=0), "jobs: expected at least 1"),
        (
            lambda: us.compare("quick", methods="fedavg", settings={"a": {"data": "mnist"}}, data=toys.dataset()),
            "settings or tune: data cannot be changed, because data= was passed from Python",
        ),
        (lambda: us.reproduce("fedlmd/table1", methods=[1]), "--methods: expected names"),
        (lambda: us.reproduce("fedlmd/table1", seeds=0.5), "--seeds"),
    ],
)
def test_mistakes_are_refused_without_a_traceback(call: Callable[[], object], message: str) -> None:
    with pytest.raises(us.UserError, match=message):
        call()


def test_compare_refuses_a_metric_beside_select(tmp_path: Path) -> None:
    with pytest.raises(us.UserError, match="drop one of the two"):
        us.compare("quick", methods="fedavg,fedprox", select="validation", metric="best", out=tmp_path / "out")


def test_a_cell_run_again_returns_the_finished_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = us.run(experiment(), data=toys.dataset(), out=tmp_path / "run")
    monkeypatch.setattr("unskew.runner.run_experiment.prepare", lambda *a, **k: pytest.fail("it was repeated"))
    second = us.run(experiment(), data=toys.dataset(), out=tmp_path / "run")
    pd.testing.assert_frame_equal(first.metrics, second.metrics)
    assert first.summary == second.summary
    with pytest.raises(us.UserError, match="already holds this run"):
        us.run(experiment(), data=toys.dataset(), out=tmp_path / "run", resume=False)


def test_a_run_shows_itself(tmp_path: Path) -> None:
    done = us.run(experiment(), data=toys.dataset(), out=tmp_path / "run")
    for run in (done, us.load(tmp_path / "run")):
        assert len(repr(run)) < 300
        assert f"{done.summary.best:.2f}" in repr(run)
        assert f"{done.summary.best:.2f}" in run._repr_html_()
        assert "<table" in run._repr_html_()


def test_a_dataset_prints_shapes() -> None:
    text = repr(toys.dataset())
    assert "train: Split(x=float32 [48, 6], y=[48])" in text
    assert "test: Split(x=float32 [12, 6], y=[12])" in text
    assert "tensor" not in text
    assert len(text.splitlines()) == 3


def test_report_writes_the_page_of_the_command(compared: Comparison, tmp_path: Path, unskew: Command) -> None:
    assert unskew("report", compared.folder, "--out", tmp_path / "command.html").code == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_folder = us.report(compared.folder, tmp_path / "folder.html")
        by_value = us.report(compared, tmp_path / "value.html")
        of_one = us.report(compared.runs[0], tmp_path / "one.html")
    assert by_folder.read_bytes() == (tmp_path / "command.html").read_bytes() == by_value.read_bytes()
    assert "fedprox" not in of_one.read_text()


def test_audit_gives_the_results_of_the_command(tmp_path: Path, unskew: Command) -> None:
    changes = ("data=digits", "partition.clients=5", "record.rounds=[1]", "engine.workers=1", *SMALL)
    folder = tmp_path / "run"
    assert unskew("run", "quick", *changes, "--out", folder).code == 0
    options = ("--attack", "ig", "--iterations", "2", "--images", "2", "--membership", "none")
    assert unskew("audit", folder, *options).code == 0
    rows = pd.read_csv(folder / "audit" / "leak.csv")
    done = us.audit(folder, attacks="ig", iterations=2, images=2, membership="none", show=False)
    pd.testing.assert_frame_equal(pd.read_csv(folder / "audit" / "leak.csv"), rows)
    assert isinstance(done, AuditResult)
    assert len(done.leaks) == len(rows)
    assert done.page == folder / "audit" / "audit.html"
    assert done.page.is_file()
    assert set(done.verdicts["kind"]) == {verdict.kind for verdict in done.audits[0].verdicts}
    assert "<table" in done._repr_html_()
    assert str(folder) in repr(done)
    again = us.audit(us.load(folder), attacks=["ig"], iterations=2, images=2, membership="none", show=False)
    pd.testing.assert_frame_equal(again.leaks, done.leaks)


def test_reproduce_gives_the_results_of_the_command(tmp_path: Path, unskew: Command) -> None:
    """From recorded rows: tests/reproductions run the targets."""
    recorded = Path(__file__).parents[2] / "results"
    words = ("reproduce", "fedlmd/table3-lda", "--preset", "released", "--recorded", recorded)
    by_command = json.loads(unskew(*words, "--out", tmp_path / "command", "--json").out)
    done = us.reproduce("fedlmd/table3-lda", preset="released", recorded=recorded, out=tmp_path / "python")
    assert isinstance(done, Reproduction)
    assert json.loads(json.dumps(done.as_dict())) == by_command | {"out": str(tmp_path / "python")}
    for name in ("table.csv", "table.md"):
        assert (tmp_path / "command" / name).read_bytes() == (tmp_path / "python" / name).read_bytes()
    assert len(done.frame) == len(by_command["cells"])
    assert "fedlmd" in repr(done)
    assert "<table" in done._repr_html_()


def test_reproduce_alone_lists_the_targets() -> None:
    targets = us.reproduce()
    assert isinstance(targets, pd.DataFrame)
    assert "fedlmd/table3-lda" in set(targets["name"])
