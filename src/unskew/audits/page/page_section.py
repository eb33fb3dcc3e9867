"""Sections for the demo's report: recovered images of one audit, and a comparison of accuracy and leakage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from unskew.audits.audit_run import Audit
from unskew.audits.page import headline
from unskew.audits.page.audit_page import TEMPLATES, environment
from unskew.audits.page.image_grids import grids
from unskew.audits.page.leak_table import tables
from unskew.audits.page.metric_titles import RECOGNISABLE
from unskew.audits.page.page_input import RunUtility
from unskew.audits.page.summarise_leaks import best_tries, mean_by_attack, utilities
from unskew.reports.report_page import ExtraSection
from unskew.results.load_run import LoadedRun

SHARED = ("features", "statistics", "raw")  # kinds of data that are shared row by row
PIXELS = ("psnr", "mse")


def section(audit: Audit, page: Path, title: str, how: str) -> ExtraSection:
    """The images recovered from one run. page: link target of the audit page; how: describes who sent what."""
    text = environment().get_template("section.html").render(
        title=title,
        finding=headline.headline(best_tries(audit.leaks), tuple(audit.verdicts)),
        how=how,
        grids=grids(audit.pictures),
        recognisable=f"{RECOGNISABLE:g}",
        threat=str(audit.budget.threat),
        effort="; ".join(audit.budget.describe(name) for name in audit.budget.attacks),
        page=page.as_posix(),
    )  # fmt: skip
    return ExtraSection(
        "what-leaks", "What leaks", Markup(text), Markup((TEMPLATES / "audit.css").read_text(encoding="utf-8"))
    )


def comparison(audits: Sequence[Audit], runs: Sequence[LoadedRun], page: Path, how: str) -> Markup:
    """Accuracy and bytes of all runs on one dataset, with the leakage of those that were audited."""
    best = best_tries([leak for audit in audits for leak in audit.leaks])
    in_pixels = best[best["metric"].isin(PIXELS) & best["space"].str.startswith("unit")]
    (table,) = tables(mean_by_attack(in_pixels), utilities([RunUtility.of(run) for run in runs]))
    text = environment().get_template("comparison.html").render(
        finding=headline.headline(best, tuple(verdict for audit in audits for verdict in audit.verdicts)),
        how=how,
        table=table,
        grids=grids([pictures for audit in audits for pictures in audit.pictures]),
        recognisable=f"{RECOGNISABLE:g}",
        effort=" ".join(f"{v.method}, {v.words}." for a in audits for v in a.verdicts if v.kind in SHARED),
        page=page.as_posix(),
    )  # fmt: skip
    return Markup(text)
