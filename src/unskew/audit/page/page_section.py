"""An audit's pictures as a section of another page, and what leaked beside what the runs are worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from unskew.audit.audit_run import Audit
from unskew.audit.page import headline
from unskew.audit.page.audit_page import HERE, environment
from unskew.audit.page.image_grids import grids
from unskew.audit.page.leak_table import tables
from unskew.audit.page.metric_titles import RECOGNISABLE
from unskew.audit.page.page_input import RunUtility
from unskew.audit.page.summarise_leaks import best_tries, by_attack, utilities
from unskew.report.report_page import ExtraSection
from unskew.results.load_run import LoadedRun

SHARED = ("features", "statistics", "raw")  # kinds that are made of single rows
PIXELS = ("psnr", "mse")


def section(audit: Audit, page: Path, title: str, how: str) -> ExtraSection:
    """What came back from the messages. page: the audit's own, as the other page links to it; how: who sent what."""
    text = environment().get_template("section.html").render(
        title=title,
        finding=headline.found(best_tries(audit.leaks), tuple(audit.verdicts)),
        how=how,
        grids=grids(audit.pictures),
        recognisable=f"{RECOGNISABLE:g}",
        threat=str(audit.budget.threat),
        tried="; ".join(audit.budget.words(name) for name in audit.budget.attacks),
        page=page.as_posix(),
    )  # fmt: skip
    return ExtraSection(
        "what-leaks", "What leaks", Markup(text), Markup((HERE / "audit.css").read_text(encoding="utf-8"))
    )


def beside(audits: Sequence[Audit], runs: Sequence[LoadedRun], page: Path, how: str) -> Markup:
    """Accuracy and bytes of runs on one dataset, and beside them how near the audits of some came to the rows."""
    best = best_tries([leak for audit in audits for leak in audit.leaks])
    near = best[best["metric"].isin(PIXELS) & best["space"].str.startswith("unit")]
    (table,) = tables(by_attack(near), utilities([RunUtility.of(run) for run in runs]))
    text = environment().get_template("beside.html").render(
        finding=headline.found(best, tuple(verdict for audit in audits for verdict in audit.verdicts)),
        how=how,
        table=table,
        grids=grids([shown for audit in audits for shown in audit.pictures]),
        recognisable=f"{RECOGNISABLE:g}",
        tried=" ".join(f"{v.method}, {v.words}." for a in audits for v in a.verdicts if v.kind in SHARED),
        page=page.as_posix(),
    )  # fmt: skip
    return Markup(text)
