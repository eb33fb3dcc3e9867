"""One HTML page about the audits of one or several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from unskew.audits.audit_run import Audit
from unskew.audits.budget import Budget
from unskew.audits.leak import KindVerdict, Pictures
from unskew.audits.membership.roc import Interval
from unskew.audits.page.audit_page import write
from unskew.audits.page.page_input import PageInput, RocCurve, RunUtility
from unskew.audits.verdict import strongest
from unskew.reports.report_page import title_of
from unskew.reports.run_facts import Fact
from unskew.results.format_numbers import listed
from unskew.results.load_run import LoadedRun, load

MAX_RUNS_IN_FULL = 2  # with more runs the page shows only the best attack's images of each


def write_page(audits: Sequence[Audit], path: Path, title: str | None = None) -> Path:
    """Utility, bytes and leakage of the runs, with the threat models and the budgets of the attacks.

    audits: all audits of each run, whose strongest verdicts are shown.
    """
    folders = list(dict.fromkeys(a.run for a in audits))
    by_folder = {folder: load(folder) for folder in folders}
    run_name = dict(zip(folders, run_names(list(by_folder.values()))))
    runs, names = [by_folder[a.run] for a in audits], [run_name[a.run] for a in audits]
    budgets = {folder: [a.budget for a in audits if a.run == folder] for folder in folders}
    renamed = [_renamed(a, name, folders.index(a.run), budgets[a.run]) for a, name in zip(audits, names)]
    page = PageInput(
        title or f"Audit: {title_of(list(by_folder.values()))}",
        tuple({a.run: replace(RunUtility.of(r, "none"), method=n) for a, r, n in zip(audits, runs, names)}.values()),
        _merge_verdicts([v for folder in folders for v in strongest(a.verdicts for a in renamed if a.run == folder)]),
        tuple(leak for a in renamed for leak in a.leaks),
        tuple(
            pictures
            for a in renamed
            for pictures in (a.pictures if len(folders) <= MAX_RUNS_IN_FULL else _closest_pictures(a.pictures))
        ),
        _roc_curves(audits, runs, names, budgets),
        tuple(dict.fromkeys(skipped for a in audits for skipped in a.skipped)),
        _facts(audits, names),
    )
    return write(page, path)


def run_names(runs: Sequence[LoadedRun]) -> list[str]:
    """The method of each run, with its folder where runs of one method differ in more than the seed."""
    settings: dict[tuple[str, str], list[dict]] = {}
    for run in runs:
        of_run = run.config.identity_settings()
        same_name = settings.setdefault((run.config.label, run.config.data.name), [])
        same_name.append({key: value for key, value in of_run.items() if key not in ("seed", "device", "engine")})
    names = []
    for run in runs:
        same_name = settings[run.config.label, run.config.data.name]
        alike = all(each == same_name[0] for each in same_name)
        names.append(run.config.label if alike else f"{run.config.label} ({run.folder.name})")
    return names


def _renamed(audit: Audit, name: str, number: int, budgets: Sequence[Budget]) -> Audit:
    """The audit under the run's name on the page, its attacks with their budget if the run has several.

    Leaks of membership inference are left out, because their curves show more.

    The run's number replaces the seed, so that the same image in two runs does not count as two tries.
    """

    def attack(title: str) -> str:
        words = audit.budget.difference(title, budgets)
        return f"{title} ({words})" if words else title

    return replace(
        audit,
        leaks=[
            replace(leak, method=name, seed=number, attack=attack(leak.attack))
            for leak in audit.leaks
            if leak.attack not in {result.attack for result in audit.membership}
        ],
        pictures=[replace(pictures, method=name, attack=attack(pictures.attack)) for pictures in audit.pictures],
        verdicts=[replace(verdict, method=name) for verdict in audit.verdicts],
    )


def _roc_curves(
    audits: Sequence[Audit], runs: Sequence[LoadedRun], names: Sequence[str], budgets: Mapping[Path, Sequence[Budget]]
) -> tuple[RocCurve, ...]:
    """Membership inference of all audits; repeated by audits that differ in other attacks, a result is shown once."""
    curves: dict[tuple[Path, str, Interval], RocCurve] = {}
    for a, run, name in zip(audits, runs, names):
        for result in a.membership:
            words = a.budget.difference(result.attack, budgets[a.run])
            shown = replace(result, attack=f"{result.attack} ({words})") if words else result
            curves[a.run, shown.attack, result.roc.auc] = RocCurve(name, "none", run.config.data.name, shown)
    return tuple(curves.values())


def _merge_verdicts(verdicts: list[KindVerdict]) -> tuple[KindVerdict, ...]:
    """One verdict for all runs with the same text, which then share a card on the page."""
    methods: dict[KindVerdict, list[str]] = {}
    for verdict in verdicts:
        methods.setdefault(replace(verdict, method=""), []).append(verdict.method)
    return tuple(replace(verdict, method=listed(list(dict.fromkeys(names)))) for verdict, names in methods.items())


def _closest_pictures(pictures: list[Pictures]) -> list[Pictures]:
    """Of each set of images the pictures of the attack that came closest; the table has the values of all attacks."""
    best: dict[tuple[int, ...], Pictures] = {}
    for candidate in pictures:
        other = best.get(candidate.images)
        if other is None or _error(candidate) < _error(other):
            best[candidate.images] = candidate
    return list(best.values())


def _error(pictures: Pictures) -> float:
    return float((pictures.true - pictures.recovered).square().mean())


def _facts(audits: Sequence[Audit], names: Sequence[str]) -> tuple[Fact, ...]:
    threats = tuple(dict.fromkeys(str(a.budget.threat) for a in audits))
    budgets = tuple(dict.fromkeys(a.budget.describe(name) for a in audits for name in a.budget.attacks))
    notes = tuple(dict.fromkeys(note for a in audits for note in a.notes))
    several = len({a.run for a in audits}) > 1
    stated = tuple(
        dict.fromkeys(f"{name}, {line}" if several else line for a, name in zip(audits, names) for line in a.conditions)
    )
    facts = (Fact("attacker", threats), Fact("conditions", stated), Fact("budget", budgets),
             Fact("local training", notes))  # fmt: skip
    return tuple(fact for fact in facts if fact.lines)
