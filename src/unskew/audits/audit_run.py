"""The audit of a run: attacks each kind of artefact that clients sent, or states why not; then membership, exposure.

Needs a run that recorded messages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from unskew.audits.attack_cases import ATTACKABLE, AttackCase, build_case
from unskew.audits.attack_shared_rows import attack_shared, is_shared
from unskew.audits.attacks import attack_by_name
from unskew.audits.budget import Budget
from unskew.audits.conditions import conditions
from unskew.audits.decode_messages import decode_round
from unskew.audits.leak import KindVerdict, Leak, Pictures
from unskew.audits.leak_rows import best_pictures, exposure_leaks, label_leaks, recovery_leaks
from unskew.audits.membership.audit_membership import attack_final_model, attack_updates, membership_leaks
from unskew.audits.membership.membership_attack import MembershipResult
from unskew.audits.metrics.metric_values import SkippedMetric
from unskew.audits.replayed_run import NoAttackError, NoImplementedAttackError, ReplayedRun, replay_run
from unskew.audits.run_attack import ReportProgress, run_attack
from unskew.audits.threat_model import Observation
from unskew.audits.validate_messages import check_messages, check_updates
from unskew.audits.verdict import Attempt, verdicts
from unskew.base.errors import UserError
from unskew.config.user_code import changed_files
from unskew.data import Dataset
from unskew.engines.engine import one_thread
from unskew.protocol.work import Work
from unskew.results import recorded_messages
from unskew.results.load_run import LoadedRun, load
from unskew.runner.process_setup import on_device, precision
from unskew.wire.ledger import REFUSED

SHADOW_COUNT = 8


@dataclass(frozen=True)
class Audit:
    """Results of an audit: leak values, recovered images, and a verdict per kind of artefact."""

    run: Path
    budget: Budget
    leaks: list[Leak] = field(default_factory=list)
    pictures: list[Pictures] = field(default_factory=list)
    verdicts: list[KindVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    membership: list[MembershipResult] = field(default_factory=list)
    skipped: list[SkippedMetric] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)  # what decides how much can be recovered, by recorded round
    environment: dict[str, str] = field(default_factory=dict)  # device and commit of a saved audit


def no_report(stage: str, done: int, total: int) -> None:
    """Ignores progress."""


def audit(
    run: str | Path,
    budget: Budget | None = None,
    *,
    device: str = "auto",
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
    report: ReportProgress = no_report,
) -> Audit:
    """Attack the recorded messages of a finished run; pass data and model again if the run got them from Python."""
    budget = budget or Budget()
    for name in budget.attacks:
        attack_by_name(name)  # raises UserError for an unknown name before anything is loaded
    loaded = load(run, model=model)
    recorded = recorded_messages.read(loaded.folder)
    if not recorded:
        raise UserError(
            f"{loaded.folder}: expected recorded messages, found none; run it again with record.rounds='[1]'"
        )
    replayed = replay_run(loaded, device, data, model, data_dir)
    # The thread count changes rounding, so it is fixed at one; steps this small would not run faster with more.
    with one_thread(), precision("float32"), on_device(replayed.context.device):
        return _run_audit(replayed, recorded, budget, report)


def _run_audit(
    replayed: ReplayedRun, recorded: list[recorded_messages.RecordedRound], budget: Budget, report: ReportProgress
) -> Audit:
    loaded = replayed.run
    for messages in recorded:
        check_messages(messages, replayed)
    recorded = [decode_round(messages, replayed.context) for messages in recorded]
    for messages in recorded:
        check_updates(messages, replayed)
    observations = [
        observation
        for r in recorded
        for observation in budget.threat.observe(r, tuple(replayed.trained.get(r.round, ())), replayed.weigh_by_rows)
    ]

    def work_at(round: int) -> Work:
        return replayed.context.at_round(round)[1]

    attempts: list[Attempt] = []
    result = Audit(loaded.folder, budget, conditions=conditions(loaded, work_at))
    for kind, part, artefact in _sent_artefacts(loaded):
        name = f"{part}/{artefact}"
        try:
            if is_shared(replayed, kind, part, artefact):
                attempt, pictures = attack_shared(replayed, budget, recorded, kind, part, artefact, report)
                result.leaks.extend(attempt.leaks)
                result.pictures.extend(pictures)
                attempts.append(attempt)
                continue
            attempts.append(_attack_artefact(replayed, budget, observations, kind, part, artefact, result, report))
        except NoAttackError as reason:
            known = not isinstance(reason, NoImplementedAttackError)
            attempts.append(Attempt(kind, name, (), str(reason), attackable=known))
    result.verdicts.extend(verdicts(attempts, budget, loaded.config.label))
    result.notes.extend(sorted({note for attempt in attempts for note in attempt.notes}))
    result.notes.extend(
        f"{file} was changed since the run: the attacks use its present contents"
        for file in changed_files(loaded.config.imports)
    )
    result.leaks.extend(exposure_leaks(replayed, budget))
    _audit_membership(replayed, budget, observations, result, report)
    return result


def _audit_membership(
    replayed: ReplayedRun, budget: Budget, observations: list[Observation], result: Audit, report: ReportProgress
) -> None:
    """Membership inference on the run's final model and on the updates that this attacker sees."""
    if budget.membership == "none":
        return
    shadow_count = SHADOW_COUNT if budget.membership == "shadow" else 0
    attacks: list[tuple[str, Callable[[], list[MembershipResult]]]] = [
        ("membership of the model", lambda: attack_final_model(replayed, shadow_count, budget.seed)),
        (
            "membership of updates",
            lambda: attack_updates(replayed, _update_cases(replayed, budget, observations), budget.seed),
        ),
    ]
    for number, (name, attack_members) in enumerate(attacks):
        report("membership", number, len(attacks))
        try:
            result.membership.extend(attack_members())
        except (UserError, NoAttackError) as error:  # a model that diverged, or too few fresh rows
            result.skipped.append(SkippedMetric(name, str(error)))
    report("membership", len(attacks), len(attacks))
    config = replayed.run.config
    result.leaks.extend(membership_leaks(result.membership, config.label, config.data.name, budget.seed))


def _update_cases(replayed: ReplayedRun, budget: Budget, observations: list[Observation]) -> list[AttackCase]:
    part, artefact, _ = replayed.context.at_round(1)[0].update_location
    with_artefact = [each for each in observations if artefact in each.up.get(part, {})]
    if not with_artefact:
        raise NoAttackError("this attacker sees no update")
    return [
        build_case(replayed, budget.threat, each, part, artefact, replayed.context.dtype, budget.max_unrolled_steps)
        for each in with_artefact
    ]


def _sent_artefacts(run: LoadedRun) -> list[tuple[str, str, str]]:
    """(kind, part, artefact) of everything that clients sent, from the ledger."""
    ledger = run.ledger
    up = ledger[(ledger["direction"] == "up") & (ledger["kind"] != REFUSED)]
    up = up[["kind", "part", "artefact"]].drop_duplicates()
    return [(str(k), str(p), str(a)) for k, p, a in up.itertuples(index=False)]


def _attack_artefact(
    replayed: ReplayedRun,
    budget: Budget,
    observations: list[Observation],
    kind: str,
    part: str,
    artefact: str,
    result: Audit,
    report: ReportProgress,
) -> Attempt:
    """Run all attacks on one artefact; adds their leaks and images to `result`."""
    if kind == "counts":
        return _counts(budget, f"{part}/{artefact}")
    if kind not in ATTACKABLE:
        raise NoImplementedAttackError
    if not budget.attacks:
        raise NoAttackError("no attack on updates was requested")
    with_artefact = [each for each in observations if artefact in each.up.get(part, {})]
    if not with_artefact:
        raise NoAttackError("not visible to this attacker" if observations else "not sent in any recorded round")
    leaks: list[Leak] = []
    notes: tuple[str, ...] = ()
    for name in budget.attacks:
        all_cases = [
            build_case(
                replayed, budget.threat, each, part, artefact, attack_by_name(name).dtype, budget.max_unrolled_steps
            )
            for each in with_artefact
        ]
        cases = _until_enough_images(all_cases, budget.images)
        notes = tuple(sorted({c.note for c in cases}))
        label = name if kind == "weights" else f"{name}/{kind}"
        if name == budget.attacks[0]:
            leaks += label_leaks(cases, replayed, budget, "labels" if kind == "weights" else f"labels/{kind}")
        cache = replayed.run.folder / "audit" / "kept"
        done = list(run_attack(name, cases, replayed, budget, cache, report))
        measured, skipped = recovery_leaks(done, replayed, budget, label)
        leaks += measured
        result.skipped.extend(metric for metric in skipped if metric not in result.skipped)
        result.pictures.extend(best_pictures(done, replayed, label))
    result.leaks.extend(leaks)
    return Attempt(kind, f"{part}/{artefact}", notes, "", tuple(leaks))


def _counts(budget: Budget, name: str) -> Attempt:
    """Counts of rows, steps or labels are private; an attacker that sees each client's message reads them directly."""
    if budget.threat.up == "nothing":
        raise NoAttackError("not visible to this attacker")
    if budget.threat.up == "sum":
        raise NoAttackError("this attacker sees only their sum over the clients")
    return Attempt("counts", name, (), "", sent_as_is="each client's counts")


def _until_enough_images(cases: list[AttackCase], images: int) -> list[AttackCase]:
    """The first cases that together have at least so many images; never part of a message, and at least one case."""
    selected: list[AttackCase] = []
    for case in cases:
        if selected and sum(len(c.images) for c in selected) >= images:
            break
        selected.append(case)
    return selected
