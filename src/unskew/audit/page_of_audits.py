"""One page over the audits of one or many runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from unskew.audit.audit_run import Audit
from unskew.audit.leak import KindVerdict, Pictures
from unskew.audit.page.audit_page import write
from unskew.audit.page.page_input import PageInput, RocCurve, RunUtility
from unskew.report.report_page import title_of
from unskew.report.run_facts import Fact
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun, load

FEW = 2  # runs of which every attack's pictures are shown


def write_page(audits: Sequence[Audit], path: Path, title: str | None = None) -> Path:
    """Utility, bytes and leak of the runs, with what was assumed about the attackers and how hard they tried."""
    runs = [load(a.run) for a in audits]
    folders = list(dict.fromkeys(a.run for a in audits))
    named = [_renamed(a, name, folders.index(a.run)) for a, name in zip(audits, names(runs))]
    page = PageInput(
        title or f"Audit: {title_of(runs)}",
        tuple(
            {a.run: replace(RunUtility.of(r, "none"), method=n) for a, r, n in zip(audits, runs, names(runs))}.values()
        ),
        _together([verdict for a in named for verdict in a.verdicts]),
        tuple(leak for a in named for leak in a.leaks if leak.attack not in {m.attack for m in a.membership}),
        tuple(shown for a in named for shown in (a.pictures if len(audits) <= FEW else _closest(a.pictures))),
        tuple(
            RocCurve(name, "none", run.config.data.name, found)
            for a, run, name in zip(audits, runs, names(runs))
            for found in a.membership
        ),
        tuple(dict.fromkeys(skipped for a in audits for skipped in a.skipped)),
        _facts(audits),
    )
    return write(page, path)


def names(runs: Sequence[LoadedRun]) -> list[str]:
    """A run's method; where runs of one method differ by more than the seed, their folders as well."""
    settings: dict[tuple[str, str], list[dict]] = {}
    for run in runs:
        plain = run.config.counting()
        seen = settings.setdefault((run.config.label, run.config.data.name), [])
        seen.append({key: value for key, value in plain.items() if key not in ("seed", "device", "engine")})
    found = []
    for run in runs:
        mine = settings[run.config.label, run.config.data.name]
        alike = all(one == mine[0] for one in mine)
        found.append(run.config.label if alike else f"{run.config.label} ({run.folder.name})")
    return found


def _renamed(audit: Audit, name: str, number: int) -> Audit:
    """Under the run's name on the page. The run's number stands for the seed: images of other runs are no tries."""
    return replace(
        audit,
        leaks=[replace(leak, method=name, seed=number) for leak in audit.leaks],
        pictures=[replace(shown, method=name) for shown in audit.pictures],
        verdicts=[replace(verdict, method=name) for verdict in audit.verdicts],
    )


def _together(verdicts: list[KindVerdict]) -> tuple[KindVerdict, ...]:
    """Runs of which the same is said share a card."""
    found: dict[KindVerdict, list[str]] = {}
    for verdict in verdicts:
        found.setdefault(replace(verdict, method=""), []).append(verdict.method)
    return tuple(replace(one, method=listed(list(dict.fromkeys(names)))) for one, names in found.items())


def _closest(pictures: list[Pictures]) -> list[Pictures]:
    """Of each run's images those of the attack that came closest; the numbers have all attacks."""
    best: dict[tuple[int, ...], Pictures] = {}
    for one in pictures:
        other = best.get(one.images)
        if other is None or _error(one) < _error(other):
            best[one.images] = one
    return list(best.values())


def _error(shown: Pictures) -> float:
    return float((shown.true - shown.recovered).square().mean())


def _facts(audits: Sequence[Audit]) -> tuple[Fact, ...]:
    threats = tuple(dict.fromkeys(str(a.budget.threat) for a in audits))
    tried = tuple(dict.fromkeys(a.budget.words(name) for a in audits for name in a.budget.attacks))
    rounds = tuple(dict.fromkeys(note for a in audits for note in a.notes))
    facts = (Fact("attacker", threats), Fact("budget", tried), Fact("the client's round, as he has it", rounds))
    return tuple(fact for fact in facts if fact.lines)
