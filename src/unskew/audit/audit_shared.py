"""The audit of what clients share row by row: features by a decoder, means and raw rows as they are, all by context."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from unskew.audit.attacks import ON_SHARED
from unskew.audit.attacks.context_attack import context
from unskew.audit.attacks.feature_decoder import decoder
from unskew.audit.budget import Budget
from unskew.audit.leak import Leak, Pictures
from unskew.audit.metrics.metric_values import MetricValues
from unskew.audit.replayed_run import NoAttackError, ReplayedRun
from unskew.audit.run_attack import Told
from unskew.audit.score_recovery import likeness
from unskew.audit.shared_data import SharedArtefact, shared
from unskew.audit.verdict import Attempt
from unskew.results.recorded_messages import RecordedRound

AS_SENT = "as-sent"  # no attack: what left, held against the rows behind it
THEMSELVES = {"raw": "the rows themselves", "labels": "the labels themselves"}


def is_shared(world: ReplayedRun, kind: str, part: str, artefact: str) -> bool:
    """Whether an artefact is rows of a kind that is dealt with here."""
    owner = next((p for p in world.context.method.parts if p.name == part), None)
    declared = None if owner is None else owner.shares.get(artefact)
    return declared is not None and declared.reduce == "rows" and kind in ("features", "statistics", *THEMSELVES)


def attempt(
    world: ReplayedRun, budget: Budget, recorded: list[RecordedRound], kind: str, part: str, artefact: str, tell: Told
) -> tuple[Attempt, list[Pictures]]:
    """Every recorded round by itself: what features give away changes as the model learns."""
    name = f"{part}/{artefact}"
    ledger = world.run.ledger
    sent = ledger[(ledger["part"] == part) & (ledger["artefact"] == artefact) & (ledger["direction"] == "up")]
    if not sent["bytes"].sum():
        raise NoAttackError("no client had any to send, so there is nothing to attack")
    if kind == "labels":
        return Attempt(kind, name, (), "", plain=THEMSELVES[kind]), []
    leaks: list[Leak] = []
    pictures: list[Pictures] = []
    words: list[str] = []
    try:
        for one in shared(world, budget.threat, recorded, part, artefact, budget.images):
            _round(one, kind, world, budget, tell, leaks, pictures, words)
    except NoAttackError:
        if kind != "raw":
            raise
    if kind != "raw" and not leaks:
        asked = "; ".join(words) or f"{' and '.join(ON_SHARED)} were not asked for"
        raise NoAttackError(f"not attacked: {asked}")
    return Attempt(kind, name, (), "", tuple(leaks), ", ".join(words), THEMSELVES.get(kind, "")), pictures


def _round(
    one: SharedArtefact,
    kind: str,
    world: ReplayedRun,
    budget: Budget,
    tell: Told,
    leaks: list[Leak],
    pictures: list[Pictures],
    words: list[str],
) -> None:
    where = f"round-{one.round}"
    add = partial(_leak, world, budget.seed)
    if kind == "features" and "decoder" in budget.on_shared:
        steps = budget.iterations_of("decoder")
        made = decoder(one, steps, budget.seed, partial(tell, "decoder"))
        rows = _rows(one, world, budget, made.rows, f"decoder/{where}", pictures)
        leaks += rows
        for number, error in enumerate(made.errors.tolist()):
            leaks.append(add(f"decoder/{where}", -1, number, "matching loss", f"training, {where}", error))
        words.append(f"{where} decoder: MSE {_mean(rows):.4f} after {steps} steps on {made.taught:,} other rows")
    if kind != "features":
        held = one.items.repeat_interleave(one.rows.shape[1], 0)
        rows = _rows(one, world, budget, held, f"{AS_SENT}/{where}", pictures)
        leaks += rows
        words.append(f"{where} as sent: MSE {_mean(rows):.4f} against each row behind it")
    if "context" in budget.on_shared:
        steps = budget.iterations_of("context")
        try:
            found = context(one, steps, budget.seed, partial(tell, "context"))
        except NoAttackError as reason:
            words.append(f"{where} context: {reason}")
            return
        leaks += [add(f"context/{where}", -1, -1, "context accuracy", f"{n} items", right) for n, right in found]
        last = found[-1]
        words.append(f"{where} context: {last.accuracy:.0f} % named after {steps} steps on {last.items:,} items")


def _mean(leaks: list[Leak]) -> float:
    """MSE of pixels, else of rows as the model takes them."""
    spaces = {space: [leak.value for leak in leaks if (leak.metric, leak.space) == ("mse", space)]
              for space in ("unit", "normalised")}  # fmt: skip
    values = spaces["unit"] or spaces["normalised"]
    return sum(values) / len(values)


def _rows(
    one: SharedArtefact, world: ReplayedRun, budget: Budget, recovered: Tensor, attack: str, pictures: list[Pictures]
) -> list[Leak]:
    """Every metric of every row behind the items; what stands for it is one try."""
    images, client_rows = one.rows.flatten().tolist(), world.context.client_rows
    true = client_rows.prepare(client_rows.x[one.rows.flatten().to(client_rows.x.device)]).to(recovered)
    leaks = [
        _leak(world, budget.seed, attack, image, 0, metric.metric, metric.space, value)
        for metric in likeness(true, recovered, world)
        if isinstance(metric, MetricValues)
        for image, value in zip(images, metric.values.tolist())
    ]
    pixels, shown = world.unit(true), world.unit(recovered)
    if pixels is not None and shown is not None and pixels.ndim == 4:
        config = world.run.config
        true, shown = pixels.float().cpu(), shown.float().cpu()
        pictures.append(Pictures(attack, tuple(images), true, shown, config.label, "none", config.data.name))
    return leaks


def _leak(
    world: ReplayedRun, seed: int, attack: str, image: int, tries: int, metric: str, space: str, value: float
) -> Leak:
    config = world.run.config
    return Leak(config.label, "none", attack, config.data.name, image, tries, metric, space, value, seed)
