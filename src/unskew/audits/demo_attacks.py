"""The last part of the demo: attacks on FLea's features, FedMix's means and, on a few digits, FedAvg's weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from unskew.audits.audit_run import audit
from unskew.audits.budget import Budget
from unskew.audits.page.page_section import SHARED, comparison, section
from unskew.audits.page_of_audits import write_page
from unskew.audits.save_audit import read_all, write
from unskew.config import recipe
from unskew.reports.report_page import ExtraSection
from unskew.results.load_run import LoadedRun
from unskew.runner.run_experiment import run

BUDGET = Budget(("ig",), images=8, iterations=100, restarts=1, membership="none")
# The decoder keeps its full number of steps: with an eighth of them it recovers nothing, and features would look safe.
SHARED_ROWS_BUDGET = Budget((), images=16, restarts=1, membership="none")
HOW_SHARED_ROWS = (
    "Some methods share more than model updates: FLea shares features of single digits, FedMix means of ten digits. "
    "The attacks use those of round 1: a decoder reconstructs digits from features, and means are compared as sent."
)
HOW = (
    "A separate small run: two clients take one step of FedAvg on four digits each and send their weights. The server "
    "optimises guessed digits until their gradient matches the one it received."
)


def demo_section(out: Path, runs: Sequence[LoadedRun] = ()) -> tuple[ExtraSection, Path]:
    """The report's section and the audit page under `out`. runs: those of the comparison; some may share rows."""
    _, experiment = recipe.load("demo-audit")
    folder = out / "audit" / experiment.identity()
    run(experiment, out=folder, resume=True)
    result = audit(folder, BUDGET, device=experiment.device)
    saved = write(result, experiment.device)
    page = write_page(read_all(folder), saved / "audit.html")
    on_weights = section(result, page.relative_to(out), "Weights, on a few digits", HOW)
    return on_weights._replace(body=_shared_rows_section(out, runs) + on_weights.body), page


def _shared_rows_section(out: Path, runs: Sequence[LoadedRun]) -> Markup:
    """Accuracy and leakage of all methods, auditing the first run of each method that shares rows; else empty."""
    first = {run.config.label: run for run in reversed(runs) if run.ledger["kind"].isin(SHARED).any()}
    audits = [audit(run.folder, SHARED_ROWS_BUDGET, device=run.config.device) for run in reversed(first.values())]
    if not audits:
        return Markup()
    page = write_page(audits, out / "audit" / "shared.html")
    return comparison(audits, runs, page.relative_to(out), HOW_SHARED_ROWS)
