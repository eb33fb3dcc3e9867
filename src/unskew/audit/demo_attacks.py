"""The end of the demo: what FLea's features, FedMix's means and, on a few digits, FedAvg's weights give away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from unskew.audit.audit_run import audit
from unskew.audit.budget import Budget
from unskew.audit.page.page_section import SHARED, beside, section
from unskew.audit.page_of_audits import write_page
from unskew.audit.save_audit import write
from unskew.config import recipe
from unskew.report.report_page import ExtraSection
from unskew.results.load_run import LoadedRun
from unskew.runner.run_experiment import run

BUDGET = Budget(("ig",), images=8, iterations=100, restarts=1, membership="none")
# The decoder's own number of steps: with an eighth of them it draws nothing, which would say that features are safe.
ON_ROWS = Budget((), images=16, restarts=1, membership="none")
HOW_ON_ROWS = (
    "Some methods send more than updates: FLea features of single digits, FedMix means of ten. From those of round 1 "
    "the server learns to draw the digits, or takes the means as they are."
)
HOW = (
    "A small run beside the comparison: two clients take one step of FedAvg on four digits each and send their "
    "weights. The server guesses digits until their gradient is the one that it sees."
)


def attacked(out: Path, runs: Sequence[LoadedRun] = ()) -> tuple[ExtraSection, Path]:
    """The section, and the audit's own page under `out`. runs: of the comparison, some of which share rows."""
    _, experiment = recipe.load("demo-audit")
    folder = out / "audit" / experiment.identity()
    run(experiment, out=folder, resume=True)
    found = audit(folder, BUDGET, device=experiment.device)
    page = write_page([found], write(found, experiment.device) / "audit.html")
    shown = section(found, page.relative_to(out), "Weights, on a few digits", HOW)
    return shown._replace(body=_on_rows(out, runs) + shown.body), page


def _on_rows(out: Path, runs: Sequence[LoadedRun]) -> Markup:
    """Accuracy and leak of all methods, by the first run of each that shares rows; nothing where none does."""
    first = {run.config.label: run for run in reversed(runs) if run.ledger["kind"].isin(SHARED).any()}
    audits = [audit(run.folder, ON_ROWS, device=run.config.device) for run in reversed(first.values())]
    if not audits:
        return Markup()
    page = write_page(audits, out / "audit" / "shared.html")
    return beside(audits, runs, page.relative_to(out), HOW_ON_ROWS)
