"""The audit of a run: every kind of artefact that left is attacked, or it is said that no attack is known here."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor, nn

from unskew.data import Dataset
from unskew.engine.base import one_thread
from unskew.errors import UserError
from unskew.privacy.attacks import find
from unskew.privacy.attacks.labels import infer_all
from unskew.privacy.budget import Budget
from unskew.privacy.cases import ATTACKABLE, Case, case, problem
from unskew.privacy.leak import Leak, Pictures, Verdict
from unskew.privacy.metrics.labels import label_accuracy
from unskew.privacy.on_shared import attempt as on_shared
from unskew.privacy.on_shared import is_shared
from unskew.privacy.problem import Recovery
from unskew.privacy.score import measure, paired
from unskew.privacy.search import Told, search
from unskew.privacy.threat import Seen
from unskew.privacy.verdict import Attempt, verdicts
from unskew.privacy.world import NoAttackError, World, set_up
from unskew.results import messages
from unskew.results.load import Loaded, load


@dataclass(frozen=True)
class Audit:
    """What was found: rows of numbers, pictures, and a verdict per kind."""

    run: Path
    budget: Budget
    leaks: list[Leak] = field(default_factory=list)
    pictures: list[Pictures] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


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
    recorded = messages.read(loaded.folder)
    if not recorded:
        raise UserError(
            f"{loaded.folder}: expected recorded messages, found none; play the run with record={{rounds: [1]}}"
        )
    world = set_up(loaded, device, data, model, data_dir)
    with one_thread():  # the same numbers under any load; small steps gain nothing by more
        return _audit(world, recorded, budget, tell)


def _audit(world: World, recorded: list[messages.Recorded], budget: Budget, tell: Told) -> Audit:
    loaded = world.run
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
    return found


def _left(run: Loaded) -> list[tuple[str, str, str]]:
    """(kind, part, artefact) of all that went up, from the ledger."""
    ledger = run.ledger
    up = ledger[ledger["direction"] == "up"][["kind", "part", "artefact"]].drop_duplicates()
    return [(str(k), str(p), str(a)) for k, p, a in up.itertuples(index=False)]


def _attempt(
    world: World, budget: Budget, seen: list[Seen], kind: str, part: str, artefact: str, found: Audit, tell: Told
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
            leaks += _labels(cases, world, budget, "labels" if kind == "weights" else f"labels/{kind}")
        keep = world.run.folder / "audit" / "kept"
        done = list(search(name, cases, world, budget, keep, tell))
        leaks += _rows(done, world, budget, shown)
        found.pictures.extend(_pictures(done, world, shown))
    found.leaks.extend(leaks)
    return Attempt(kind, f"{part}/{artefact}", notes, "", tuple(leaks))


def _some(cases: list[Case], images: int) -> list[Case]:
    """Whole messages until there are enough images; at least one."""
    taken: list[Case] = []
    for one in cases:
        if taken and sum(len(c.images) for c in taken) >= images:
            break
        taken.append(one)
    return taken


def _leak(
    world: World, attack: str, image: int, restart: int, metric: str, space: str, value: float, seed: int
) -> Leak:
    config = world.run.config
    return Leak(config.label, "none", attack, config.data.name, image, restart, metric, space, value, seed)


def _labels(cases: list[Case], world: World, budget: Budget, attack: str) -> list[Leak]:
    """Label inference: percent right of every message."""
    leaks = []
    for one in cases:
        posed = problem([one], world, budget.threat)
        inferred = infer_all(posed.model, posed.target, posed.classes, posed.n)
        if inferred is not None:
            right = label_accuracy(one.y, inferred[0])
            leaks.append(_leak(world, attack, -1, -1, "label accuracy", "percent", right, budget.seed))
    return leaks


def _rows(done: list[tuple[Case, Recovery]], world: World, budget: Budget, attack: str) -> list[Leak]:
    """Every metric of every image and try; a further message with the same image is a further try."""
    leaks, tries = [], dict.fromkeys((image for case, _ in done for image in case.images), 0)
    for one, made in done:
        for r, x in enumerate(made.x):
            order = paired(one.x, x)
            for metric in measure(one.x, x[order], world.unit):
                for image, value in zip(one.images, metric.values.tolist()):
                    number = tries[image] + r
                    leaks.append(_leak(world, attack, image, number, metric.metric, metric.space, value, budget.seed))
            loss = float(made.loss[r])
            leaks.append(_leak(world, attack, -1, r, "matching loss", one.name, loss, budget.seed))
        for image in one.images:
            tries[image] += len(made.x)
    return leaks


def _pictures(done: list[tuple[Case, Recovery]], world: World, attack: str) -> list[Pictures]:
    """Of every message the try that came nearest."""
    images: list[int] = []
    true: list[Tensor] = []
    recovered: list[Tensor] = []
    for one, made in done:
        tries = [x[paired(one.x, x)] for x in made.x]
        pixels = world.unit(one.x)
        if pixels is None or pixels.ndim != 4:
            return []
        shown = [world.unit(x.nan_to_num(0.0)) for x in tries]
        best = min(shown, key=lambda x: float((x - pixels).square().mean()))  # type: ignore[operator]
        images += one.images
        true.append(pixels.float().cpu())
        recovered.append(best.float().cpu())  # type: ignore[union-attr]
    import torch

    config = world.run.config
    return [
        Pictures(attack, tuple(images), torch.cat(true), torch.cat(recovered), config.label, "none", config.data.name)
    ]
