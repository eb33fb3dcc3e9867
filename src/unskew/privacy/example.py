"""The end of the demo: FedAvg on a few digits, its messages attacked, and what came back as a section of the report."""

from __future__ import annotations

from pathlib import Path

from unskew import recipe
from unskew.privacy.audit import audit
from unskew.privacy.budget import Budget
from unskew.privacy.page.section import section
from unskew.privacy.paged import write_page
from unskew.privacy.written import write
from unskew.report.page import Extra
from unskew.runner import run

BUDGET = Budget(("ig",), images=8, iterations=100, restarts=1, membership="none")
HOW = (
    "A small run beside the comparison: two clients take one step of FedAvg on four digits each and send their "
    "weights. The server guesses digits until their gradient is the one that it sees."
)


def attacked(out: Path) -> tuple[Extra, Path]:
    """The section, and the audit's own page under `out`."""
    _, experiment = recipe.load("demo-audit")
    folder = out / "audit" / experiment.identity()
    run(experiment, out=folder, resume=True)
    found = audit(folder, BUDGET, device=experiment.device)
    page = write_page([found], write(found, experiment.device) / "audit.html")
    return section(found, page.relative_to(out), HOW), page
