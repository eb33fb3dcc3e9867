"""The audit of a run: every kind of artefact that left is attacked, or it is said that no attack is known here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from unskew.audit.attack_cases import ATTACKABLE, AttackCase, case
from unskew.audit.attacks import find
from unskew.audit.audit_shared import attempt as on_shared
from unskew.audit.audit_shared import is_shared
from unskew.audit.budget import Budget
from unskew.audit.decode_messages import opened
from unskew.audit.leak import KindVerdict, Leak, Pictures
from unskew.audit.leak_rows import exposed, labels, pictures, rows
from unskew.audit.membership.audit_membership import as_leaks, on_final_model, on_updates
from unskew.audit.membership.membership_attack import MembershipResult
from unskew.audit.metrics.metric_values import SkippedMetric
from unskew.audit.replayed_run import NoAttackError, ReplayedRun, set_up
from unskew.audit.run_attack import Told, search
from unskew.audit.threat_model import Observation
from unskew.audit.validate_messages import check, check_updates
from unskew.audit.verdict import Attempt, verdicts
from unskew.base.errors import UserError
from unskew.data import Dataset
from unskew.engines.engine import one_thread
from unskew.results import recorded_messages
from unskew.results.load_run import LoadedRun, load
from unskew.runner.process_setup import on_device, precision
from unskew.wire.ledger import REFUSED

SHADOWS = 8


@dataclass(frozen=True)
class Audit:
    """What was found: rows of numbers, pictures, and a verdict per kind."""

    run: Path
    budget: Budget
    leaks: list[Leak] = field(default_factory=list)
    pictures: list[Pictures] = field(default_factory=list)
    verdicts: list[KindVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    membership: list[MembershipResult] = field(default_factory=list)
    skipped: list[SkippedMetric] = field(default_factory=list)


def silent(what: str, done: int, total: int) -> None:
    """Tells nobody."""


def audit(
    run: str | Path,
    budget: Budget | None = None,
    *,
    device: str = "auto",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
    tell: Told = silent,
) -> Audit:
    """Attack the recorded messages of a finished run; data and model are those that it was given from Python."""
    budget = budget or Budget()
    for name in budget.attacks:
        find(name)
    loaded = load(run, model=model)
    recorded = recorded_messages.read(loaded.folder)
    if not recorded:
        raise UserError(
            f"{loaded.folder}: expected recorded messages, found none; play the run with record.rounds='[1]'"
        )
    world = set_up(loaded, device, data, model, data_dir)
    # One thread: the same numbers under any load; small steps gain nothing by more.
    with one_thread(), precision("float32"), on_device(world.context.device):
        return _audit(world, recorded, budget, tell)


def _audit(world: ReplayedRun, recorded: list[recorded_messages.RecordedRound], budget: Budget, tell: Told) -> Audit:
    loaded = world.run
    for one in recorded:
        check(one, world)
    recorded = [opened(one, world.context) for one in recorded]
    for one in recorded:
        check_updates(one, world)
    seen = [s for r in recorded for s in budget.threat.sees(r, tuple(world.trained.get(r.round, ())), world.by_rows)]
    attempts, found = [], Audit(loaded.folder, budget)
    for kind, part, artefact in _left(loaded):
        name = f"{part}/{artefact}"
        try:
            if is_shared(world, kind, part, artefact):
                attempt, shown = on_shared(world, budget, recorded, kind, part, artefact, tell)
                found.leaks.extend(attempt.leaks)
                found.pictures.extend(shown)
                attempts.append(attempt)
                continue
            attempts.append(_attempt(world, budget, seen, kind, part, artefact, found, tell))
        except NoAttackError as reason:
            attempts.append(Attempt(kind, name, (), str(reason)))
    found.verdicts.extend(verdicts(attempts, budget, loaded.config.label))
    found.notes.extend(sorted({note for attempt in attempts for note in attempt.notes}))
    found.leaks.extend(exposed(world, budget))
    _members(world, budget, seen, found, tell)
    return found


def _members(world: ReplayedRun, budget: Budget, seen: list[Observation], found: Audit, tell: Told) -> None:
    """Whose rows they were: from the model that the run left, and from the updates that this attacker sees."""
    if budget.membership == "none":
        return
    shadows = SHADOWS if budget.membership == "shadow" else 0
    asked: list[tuple[str, Callable[[], list[MembershipResult]]]] = [
        ("membership of the model", lambda: on_final_model(world, shadows, budget.seed)),
        ("membership of updates", lambda: on_updates(world, _updates(world, budget, seen), budget.seed)),
    ]
    for number, (what, ask) in enumerate(asked):
        tell("members", number, len(asked))
        try:
            found.membership.extend(ask())
        except (UserError, NoAttackError) as error:  # a model that diverged, too few fresh rows
            found.skipped.append(SkippedMetric(what, str(error)))
    tell("members", len(asked), len(asked))
    config = world.run.config
    found.leaks.extend(as_leaks(found.membership, config.label, config.data.name, budget.seed))


def _updates(world: ReplayedRun, budget: Budget, seen: list[Observation]) -> list[AttackCase]:
    part, artefact, _ = world.context.at_round(1)[0].update
    theirs = [s for s in seen if artefact in s.up.get(part, {})]
    if not theirs:
        raise NoAttackError("no update in what this attacker sees")
    return [case(world, budget.threat, s, part, artefact, world.context.dtype, budget.longest) for s in theirs]


def _left(run: LoadedRun) -> list[tuple[str, str, str]]:
    """(kind, part, artefact) of all that went up, from the ledger."""
    ledger = run.ledger
    up = ledger[(ledger["direction"] == "up") & (ledger["kind"] != REFUSED)]
    up = up[["kind", "part", "artefact"]].drop_duplicates()
    return [(str(k), str(p), str(a)) for k, p, a in up.itertuples(index=False)]


def _attempt(
    world: ReplayedRun,
    budget: Budget,
    seen: list[Observation],
    kind: str,
    part: str,
    artefact: str,
    found: Audit,
    tell: Told,
) -> Attempt:
    """All attacks on one artefact; their rows and pictures go to `found`."""
    if kind not in ATTACKABLE:
        raise NoAttackError("no attack known here")
    if not budget.attacks:
        raise NoAttackError("not attacked: no attack on updates was asked for")
    theirs = [s for s in seen if artefact in s.up.get(part, {})]
    if not theirs:
        why = "not in what this attacker sees" if seen else "in no recorded round"
        raise NoAttackError(f"{why}, so not attacked")
    leaks: list[Leak] = []
    notes: tuple[str, ...] = ()
    for name in budget.attacks:
        made = [case(world, budget.threat, s, part, artefact, find(name).dtype, budget.longest) for s in theirs]
        cases = _some(made, budget.images)
        notes = tuple(sorted({c.note for c in cases}))
        shown = name if kind == "weights" else f"{name}/{kind}"
        if name == budget.attacks[0]:
            leaks += labels(cases, world, budget, "labels" if kind == "weights" else f"labels/{kind}")
        keep = world.run.folder / "audit" / "kept"
        done = list(search(name, cases, world, budget, keep, tell))
        measured, skipped = rows(done, world, budget, shown)
        leaks += measured
        found.skipped.extend(one for one in skipped if one not in found.skipped)
        found.pictures.extend(pictures(done, world, shown))
    found.leaks.extend(leaks)
    return Attempt(kind, f"{part}/{artefact}", notes, "", tuple(leaks))


def _some(cases: list[AttackCase], images: int) -> list[AttackCase]:
    """Whole messages until there are enough images; at least one."""
    taken: list[AttackCase] = []
    for one in cases:
        if taken and sum(len(c.images) for c in taken) >= images:
            break
        taken.append(one)
    return taken
