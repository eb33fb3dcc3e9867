"""Audit data that clients share row by row.

Features are attacked with a decoder; means and raw rows are compared, as they were sent, with the training rows behind
them; the context attack is run on all three.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from unskew.audits.attacks import SHARED_ATTACKS
from unskew.audits.attacks.context_attack import context_attack
from unskew.audits.attacks.feature_decoder import decode_features
from unskew.audits.budget import Budget
from unskew.audits.leak import Leak, Pictures
from unskew.audits.metrics.metric_values import MetricValues
from unskew.audits.replayed_run import NoAttackError, ReplayedRun
from unskew.audits.run_attack import ReportProgress
from unskew.audits.score_recovery import similarity_metrics
from unskew.audits.shared_data import SharedArtefact, shared_artefacts
from unskew.audits.verdict import Attempt
from unskew.results.recorded_messages import RecordedRound

AS_SENT = "as-sent"  # no attack: the sent values are compared with the rows behind them
SENT_AS_IS = {"raw": "the rows themselves", "labels": "the labels themselves"}


def is_shared(replayed: ReplayedRun, kind: str, part: str, artefact: str) -> bool:
    """Whether an artefact is shared row by row and of a kind that `attack_shared` handles."""
    owner = next((p for p in replayed.context.method.parts if p.name == part), None)
    declared = None if owner is None else owner.shares.get(artefact)
    return declared is not None and declared.reduce == "rows" and kind in ("features", "statistics", *SENT_AS_IS)


def attack_shared(
    replayed: ReplayedRun,
    budget: Budget,
    recorded: list[RecordedRound],
    kind: str,
    part: str,
    artefact: str,
    report: ReportProgress,
) -> tuple[Attempt, list[Pictures]]:
    """Attack each recorded round separately: how much features leak changes as the model learns."""
    name = f"{part}/{artefact}"
    ledger = replayed.run.ledger
    sent = ledger[(ledger["part"] == part) & (ledger["artefact"] == artefact) & (ledger["direction"] == "up")]
    if not sent["bytes"].sum():
        raise NoAttackError("no client had any to send, so there is nothing to attack")
    if kind == "labels":
        return Attempt(kind, name, (), "", sent_as_is=SENT_AS_IS[kind]), []
    leaks: list[Leak] = []
    pictures: list[Pictures] = []
    efforts: list[str] = []
    try:
        for shared in shared_artefacts(replayed, budget.threat, recorded, part, artefact, budget.images):
            _attack_round(shared, kind, replayed, budget, report, leaks, pictures, efforts)
    except NoAttackError:
        if kind != "raw":
            raise
    if kind != "raw" and not leaks:
        reason = "; ".join(efforts) or f"{' and '.join(SHARED_ATTACKS)} were not requested"
        raise NoAttackError(reason)
    return Attempt(kind, name, (), "", tuple(leaks), ", ".join(efforts), SENT_AS_IS.get(kind, "")), pictures


def _attack_round(
    shared: SharedArtefact,
    kind: str,
    replayed: ReplayedRun,
    budget: Budget,
    report: ReportProgress,
    leaks: list[Leak],
    pictures: list[Pictures],
    efforts: list[str],
) -> None:
    """Run the requested attacks on one round; appends to leaks, pictures and efforts."""
    where = f"round-{shared.round}"
    new_leak = partial(_leak, replayed, budget.seed)
    if kind == "features" and "decoder" in budget.on_shared:
        steps = budget.iterations_of("decoder")
        decoded = decode_features(shared, steps, budget.seed, partial(report, "decoder"))
        scores = _score_rows(shared, replayed, budget, decoded.rows, f"decoder/{where}", pictures)
        leaks += scores
        for number, error in enumerate(decoded.errors.tolist()):
            leaks.append(new_leak(f"decoder/{where}", -1, number, "matching loss", f"training, {where}", error))
        mse, trained_on = _mean_mse(scores), f"{decoded.train_rows:,} rows of other clients"
        efforts.append(f"{where} decoder: MSE {mse:.4f} after {steps} steps on {trained_on}")
    if kind != "features":
        as_sent = shared.items.repeat_interleave(shared.rows.shape[1], 0)
        scores = _score_rows(shared, replayed, budget, as_sent, f"{AS_SENT}/{where}", pictures)
        leaks += scores
        efforts.append(f"{where} as sent: MSE {_mean_mse(scores):.4f} against each row behind it")
    if "context" in budget.on_shared:
        steps = budget.iterations_of("context")
        try:
            results = context_attack(shared, steps, budget.seed, partial(report, "context"))
        except NoAttackError as reason:
            efforts.append(f"{where} context: {reason}")
            return
        attack = f"context/{where}"
        leaks += [new_leak(attack, -1, -1, "context accuracy", f"{n} items", accuracy) for n, accuracy in results]
        last = results[-1]
        efforts.append(f"{where} context: {last.accuracy:.0f} % identified after {steps} steps on {last.items:,} items")


def _mean_mse(leaks: list[Leak]) -> float:
    """Mean MSE over pixels in [0, 1], or over normalised rows where rows are not pixels."""
    spaces = {space: [leak.value for leak in leaks if (leak.metric, leak.space) == ("mse", space)]
              for space in ("unit", "normalised")}  # fmt: skip
    values = spaces["unit"] or spaces["normalised"]
    return sum(values) / len(values)


def _score_rows(
    shared: SharedArtefact,
    replayed: ReplayedRun,
    budget: Budget,
    recovered: Tensor,
    attack: str,
    pictures: list[Pictures],
) -> list[Leak]:
    """Every metric of every training row behind the items, with one try per row; appends the images to pictures."""
    images, client_rows = shared.rows.flatten().tolist(), replayed.context.client_rows
    true = client_rows.prepare(client_rows.x[shared.rows.flatten().to(client_rows.x.device)]).to(recovered)
    leaks = [
        _leak(replayed, budget.seed, attack, image, 0, metric.metric, metric.space, value)
        for metric in similarity_metrics(true, recovered, replayed)
        if isinstance(metric, MetricValues)
        for image, value in zip(images, metric.values.tolist())
    ]
    true_pixels, recovered_pixels = replayed.unit(true), replayed.unit(recovered)
    if true_pixels is not None and recovered_pixels is not None and true_pixels.ndim == 4:
        config = replayed.run.config
        pair = true_pixels.float().cpu(), recovered_pixels.float().cpu()
        pictures.append(Pictures(attack, tuple(images), *pair, config.label, "none", config.data.name))
    return leaks


def _leak(
    replayed: ReplayedRun, seed: int, attack: str, image: int, restart: int, metric: str, space: str, value: float
) -> Leak:
    config = replayed.run.config
    return Leak(config.label, "none", attack, config.data.name, image, restart, metric, space, value, seed)
