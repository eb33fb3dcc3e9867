"""Audits of several runs: the page, the recorded table, membership inference, and the demo's sections."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

import unskew as us
from runner.conftest import Command
from unskew.audits import save_audit
from unskew.audits.page.headline import STATES

QUICK = ("--attack", "ig", "--iterations", "2", "--restarts", "1", "--images", "2", "--device", "cpu")


def run_digits(folder: Path, **changes: object) -> Path:
    """Run digits with a few rows per client and one recorded round; returns the folder."""
    local = {"steps": 1, "batch": 4, "lr": 0.1}
    keys = {"rounds": 1, "local": local, "record": {"rounds": [1]}, "engine": {"name": "loop", "workers": 1}}
    partition = {"name": "on-demand", "clients": 3, "rows": 4}
    us.run(us.Experiment(partition=partition, device="cpu", **keys | changes), out=folder)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    one = {"local": {"steps": 2, "batch": 4, "lr": 0.1}}
    return [run_digits(folder / "a"), run_digits(folder / "b", **one), run_digits(folder / "c", method="fedprox")]


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_several_runs_are_on_one_page_with_distinct_names(runs: list[Path], tmp_path: Path, unskew: Command) -> None:
    result = unskew("audit", *runs, *QUICK, "--page", tmp_path / "all.html")
    assert result.code == 0, result.err
    page = (tmp_path / "all.html").read_text()
    assert all(name in page for name in ("fedavg (a)", "fedavg (b)", "fedprox"))
    assert "fedprox (c)" not in page
    assert "Accuracy against PSNR" in page
    assert all((run / "audit" / "leak.csv").exists() for run in runs)


def test_seeds_of_one_setting_share_a_name(runs: list[Path], tmp_path: Path, unskew: Command) -> None:
    other = run_digits(tmp_path / "seed", seed=1)
    assert unskew("audit", runs[0], other, *QUICK, "--page", tmp_path / "p.html").code == 0
    page = (tmp_path / "p.html").read_text()
    assert "fedavg (seed)" not in page
    assert "None of 8 images were recovered from what fedavg sent" in page  # the same image in two runs counts twice


def test_recorded_rows_are_replaced_and_others_stay(runs: list[Path], tmp_path: Path, unskew: Command) -> None:
    table = tmp_path / "audit" / "leak.csv"
    assert unskew("audit", runs[0], *QUICK, "--record", tmp_path).code == 0
    first = rows_of(table)
    columns = "method,defence,attack,dataset,image,restart,metric,space,value,seed,device,commit"
    assert ",".join(first[0]).startswith(columns)
    assert {(r["batch"], r["local"], r["threat"]) for r in first} == {("4", "1 steps", "server")}
    before = table.read_bytes()
    assert unskew("audit", runs[0], *QUICK, "--record", tmp_path).code == 0
    assert table.read_bytes() == before
    assert unskew("audit", runs[1], *QUICK, "--record", tmp_path).code == 0
    assert {r["local"] for r in rows_of(table)} == {"1 steps", "2 steps"}
    assert [r for r in rows_of(table) if r["local"] == "1 steps"] == first


def test_a_table_with_other_columns_is_not_overwritten(runs: list[Path], tmp_path: Path, unskew: Command) -> None:
    table = tmp_path / "audit" / "leak.csv"
    table.parent.mkdir()
    table.write_text("a,b\n1,2\n")
    result = unskew("audit", runs[0], *QUICK, "--record", tmp_path)
    assert result.code == 2
    assert "expected the columns" in result.err
    assert table.read_text() == "a,b\n1,2\n"


def test_membership_by_loss_by_gain_and_by_shadows(runs: list[Path], unskew: Command) -> None:
    result = unskew("audit", runs[0], *QUICK, "--membership", "shadow")
    assert result.code == 0, result.err
    names = ["loss threshold", "shadow models", "loss gain of updates"]
    assert all(f"membership by {name}: AUC" in result.out for name in names)
    rows = rows_of(runs[0] / "audit" / "leak.csv")
    assert {(r["attack"], r["metric"]) for r in rows if r["attack"] in names} == {
        (name, metric) for name in names for metric in ("auc", "tpr@0.1%", "tpr@1%")
    }
    again = save_audit.read_all(runs[0])[-1]
    assert [one.attack for one in again.membership] == names
    assert again.membership[0].roc.rates[0].non_members > 100
    page = (runs[0] / "audit" / "audit.html").read_text()
    assert "loss gain of updates" in page


def test_an_update_reveals_the_rows_it_was_trained_on(runs: list[Path]) -> None:
    """After one step on four rows their loss has fallen more than that of others, which the attack detects."""
    from unskew.audits.audit_run import audit
    from unskew.audits.budget import Budget

    result = audit(runs[0], Budget(("ig",), images=1, iterations=1, restarts=1), device="cpu")
    (gain,) = [each for each in result.membership if each.attack == "loss gain of updates"]
    assert gain.roc.members == 12
    assert gain.roc.auc.low > 0.5


def test_membership_none_skips_membership_inference(runs: list[Path], unskew: Command) -> None:
    result = unskew("audit", runs[0], *QUICK, "--membership", "none")
    assert "membership" not in result.out
    assert unskew("audit", runs[0], *QUICK, "--membership", "shadows").code == 2


def test_a_skipped_metric_is_on_the_page_with_the_reason(runs: list[Path], unskew: Command) -> None:
    result = unskew("audit", runs[0], *QUICK)
    assert "lpips: skipped, AlexNet needs images of at least 31" in result.out
    page = (runs[0] / "audit" / "audit.html").read_text()
    assert "AlexNet needs images" in page
    assert {r["metric"] for r in rows_of(runs[0] / "audit" / "leak.csv")} >= {"mse", "mse-r", "psnr"}
    assert STATES["leaked"] in page, "the clients' numbers of rows are sent in clear"


def test_the_demo_report_has_a_section_with_recovered_images(tmp_path: Path) -> None:
    from unskew.audits.demo_attacks import demo_section
    from unskew.reports.report_page import write_settings

    section, page = demo_section(tmp_path)
    assert "All 8 images were recovered" in section.body
    assert section.body.count("<img") == 16
    assert page.is_file()
    assert str(page.relative_to(tmp_path)) in section.body
    report = write_settings([], [], tmp_path / "report.html", "demo", "final", section).read_text()
    assert '<a href="#what-leaks">' in report
    assert section.body in report
    again, _ = demo_section(tmp_path)  # a second demo in the same folder
    assert again == section


def test_the_demo_report_compares_accuracy_and_leakage_of_methods_that_share_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unskew.audits import demo_attacks

    keys = {"rounds": 1, "participation": 0.3, "partition": {"name": "iid", "clients": 20}, "record": {"rounds": [1]}}
    names = ("fedavg", "flea", "fedmix")
    for name in names:
        us.run(us.Experiment(method=name, engine={"name": "loop", "workers": 1}, **keys), out=tmp_path / "cells" / name)
    monkeypatch.setattr(demo_attacks, "SHARED_ROWS_BUDGET", replace(demo_attacks.SHARED_ROWS_BUDGET, iterations=5))
    runs = [us.load(tmp_path / "cells" / name) for name in names]
    text = demo_attacks._shared_rows_section(tmp_path, runs)
    lines = {line: text.partition(f'<th scope="row">{line}</th>')[2].partition("</tr>")[0] for line in names}
    for run in runs:
        assert f"<td>{run.summary.mean_last10:.1f}</td>" in lines[run.config.label]
    assert "decoder/round-1" in lines["flea"]
    assert "as-sent/round-1" in lines["fedmix"]
    assert "<td>–</td>" in lines["fedavg"]
    assert text.count("<img") == 2 * 16
    assert (tmp_path / "audit" / "shared.html").is_file()
    assert 'href="audit/shared.html"' in text
    assert demo_attacks._shared_rows_section(tmp_path, runs[:1]) == ""


def test_exposure_of_broadcast_features_is_computed_from_the_ledger(runs: list[Path]) -> None:
    from types import SimpleNamespace

    from unskew.audits.budget import Budget
    from unskew.audits.leak_rows import exposure_leaks

    run = us.load(runs[0])
    replayed = SimpleNamespace(run=run, context=SimpleNamespace(task=SimpleNamespace(clients=3)))
    assert exposure_leaks(replayed, Budget()) == []  # type: ignore[arg-type]
    shared = run.ledger.copy()
    is_weights = shared["artefact"] == "weights"
    shared.loc[is_weights, ["kind", "part"]] = ["features", "share"]
    order = shared.sort_values("direction", ascending=False, kind="stable")  # up, then down to all three
    with_features = SimpleNamespace(run=SimpleNamespace(ledger=order, config=run.config), context=replayed.context)
    (leak,) = exposure_leaks(with_features, Budget())  # type: ignore[arg-type]
    assert (leak.metric, leak.value) == ("exposure", 100.0)
