"""One page over the audits of one or many runs."""

from __future__ import annotations

from pathlib import Path

from unskew.privacy.audit import Audit
from unskew.privacy.page.input import PageInput, Utility
from unskew.privacy.page.write import write
from unskew.report.facts import Fact
from unskew.results.load import load


def write_page(audits: list[Audit], path: Path, title: str | None = None) -> Path:
    """Utility, bytes and leak of the runs, with what was assumed about the attackers and how hard they tried."""
    threats = tuple(dict.fromkeys(str(a.budget.threat) for a in audits))
    tried = tuple(dict.fromkeys(a.budget.words(name) for a in audits for name in a.budget.attacks))
    rounds = tuple(dict.fromkeys(note for a in audits for note in a.notes))
    facts = (Fact("attacker", threats), Fact("budget", tried), Fact("the client's round, as he has it", rounds))
    runs = tuple(Utility.of(load(a.run), "none") for a in audits)
    page = PageInput(
        title or f"Audit: {', '.join(dict.fromkeys(run.method for run in runs))}",
        runs,
        tuple(verdict for a in audits for verdict in a.verdicts),
        tuple(leak for a in audits for leak in a.leaks),
        tuple(shown for a in audits for shown in a.pictures),
        facts=tuple(fact for fact in facts if fact.lines),
    )
    return write(page, path)
