"""What was recovered as rows of numbers and as pictures, each try against the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audit.attack_cases import AttackCase, problem
from unskew.audit.attacks.label_inference import infer_all
from unskew.audit.budget import Budget
from unskew.audit.leak import Leak, Pictures
from unskew.audit.metrics.exposure import exposure
from unskew.audit.metrics.label_accuracy import label_accuracy
from unskew.audit.metrics.metric_values import SkippedMetric
from unskew.audit.problem import Recovery
from unskew.audit.replayed_run import ReplayedRun
from unskew.audit.score_recovery import measure, paired
from unskew.base.per_client import MANY


def _leak(
    world: ReplayedRun, attack: str, image: int, restart: int, metric: str, space: str, value: float, seed: int
) -> Leak:
    config = world.run.config
    return Leak(config.label, "none", attack, config.data.name, image, restart, metric, space, value, seed)


def exposed(world: ReplayedRun, budget: Budget) -> list[Leak]:
    """Of features that went up and came down again: to how many pairs of clients, by the ledger of the whole run."""
    ledger, clients = world.run.ledger, world.context.task.clients
    ways = set(ledger.loc[ledger["kind"] == "features", "direction"])
    if ways != {"up", "down"} or clients > MANY:
        return []
    value = float(exposure(ledger, "features", clients)["value"].iloc[-1])
    return [_leak(world, "ledger", -1, -1, "exposure", "features, latest uploads", value, budget.seed)]


def labels(cases: list[AttackCase], world: ReplayedRun, budget: Budget, attack: str) -> list[Leak]:
    """Label inference: percent right of every message."""
    leaks = []
    for one in cases:
        posed = problem([one], world, budget.threat)
        inferred = infer_all(posed.model, posed.target, posed.classes, posed.n)
        if inferred is not None:
            right = label_accuracy(one.y, inferred[0])
            leaks.append(_leak(world, attack, -1, -1, "label accuracy", "percent", right, budget.seed))
    return leaks


def rows(
    done: list[tuple[AttackCase, Recovery]], world: ReplayedRun, budget: Budget, attack: str
) -> tuple[list[Leak], list[SkippedMetric]]:
    """Every metric of every image and try; a further message with the same image is a further try."""
    leaks, skipped = [], []
    tries = dict.fromkeys((image for case, _ in done for image in case.images), 0)
    for one, made in done:
        count = len(made.x)
        ordered = torch.cat([x[paired(one.x, x)] for x in made.x])
        for metric in measure(one, one.x.repeat(count, *(1 for _ in one.x.shape[1:])), ordered, world):
            if isinstance(metric, SkippedMetric):
                skipped.append(metric)
                continue
            for number, values in enumerate(metric.values.reshape(count, -1).tolist()):
                for image, value in zip(one.images, values):
                    at = image, tries[image] + number
                    leaks.append(_leak(world, attack, *at, metric.metric, metric.space, value, budget.seed))
        for r, loss in enumerate(made.loss.tolist()):
            leaks.append(_leak(world, attack, -1, r, "matching loss", one.name, loss, budget.seed))
        for image in one.images:
            tries[image] += count
    return leaks, skipped


def pictures(done: list[tuple[AttackCase, Recovery]], world: ReplayedRun, attack: str) -> list[Pictures]:
    """Of every image the try that came nearest."""
    images: list[int] = []
    true: list[Tensor] = []
    recovered: list[Tensor] = []
    for one, made in done:
        tries = [x[paired(one.x, x)] for x in made.x]
        pixels = world.unit(one.x)
        if pixels is None or pixels.ndim != 4:
            return []
        shown = [world.unit(x.nan_to_num(0.0)) for x in tries]
        each = torch.stack([x for x in shown if x is not None])  # [tries, n, C, H, W]
        best = (each - pixels).square().flatten(2).mean(2).argmin(0)
        images += one.images
        true.append(pixels.float().cpu())
        recovered.append(each[best, torch.arange(len(pixels), device=each.device)].float().cpu())
    config = world.run.config
    return [
        Pictures(attack, tuple(images), torch.cat(true), torch.cat(recovered), config.label, "none", config.data.name)
    ]
