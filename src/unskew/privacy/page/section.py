"""An audit's pictures as a section of another page."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from unskew.privacy.audit import Audit
from unskew.privacy.page import words
from unskew.privacy.page.grids import grids
from unskew.privacy.page.known import RECOGNISABLE
from unskew.privacy.page.summary import best_tries, recognised
from unskew.privacy.page.write import HERE, environment
from unskew.report.page import Extra


def section(audit: Audit, page: Path, how: str) -> Extra:
    """What came back from the messages. page: the audit's own, as the other page links to it; how: who sent what."""
    text = environment().get_template("section.html").render(
        finding=words.found(recognised(best_tries(audit.leaks)), tuple(audit.verdicts)),
        how=how,
        grids=grids(audit.pictures),
        recognisable=f"{RECOGNISABLE:g}",
        threat=str(audit.budget.threat),
        tried="; ".join(audit.budget.words(name) for name in audit.budget.attacks),
        page=page.as_posix(),
    )  # fmt: skip
    return Extra("what-leaks", "What leaks", Markup(text), Markup((HERE / "audit.css").read_text(encoding="utf-8")))
