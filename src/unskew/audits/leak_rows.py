"""Turns recoveries into leak values and images, comparing each try with the ground truth."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.audits.attack_cases import AttackCase, build_problem
from unskew.audits.attacks.label_inference import infer_labels_of_all
from unskew.audits.budget import Budget
from unskew.audits.leak import Leak, Pictures
from unskew.audits.metrics.exposure import exposure
from unskew.audits.metrics.label_accuracy import label_accuracy
from unskew.audits.metrics.metric_values import SkippedMetric
from unskew.audits.problem import Recovery
from unskew.audits.replayed_run import ReplayedRun
from unskew.audits.score_recovery import match_rows, recovery_metrics
from unskew.base.per_client import MANY_CLIENTS


def _leak(
    replayed: ReplayedRun, attack: str, image: int, restart: int, metric: str, space: str, value: float, seed: int
) -> Leak:
    config = replayed.run.config
    return Leak(config.label, "none", attack, config.data.name, image, restart, metric, space, value, seed)


def exposure_leaks(replayed: ReplayedRun, budget: Budget) -> list[Leak]:
    """Exposure of features that the server passed on to clients, from the ledger of the whole run."""
    ledger, clients = replayed.run.ledger, replayed.context.task.clients
    directions = set(ledger.loc[ledger["kind"] == "features", "direction"])
    if directions != {"up", "down"} or clients > MANY_CLIENTS:
        return []
    value = float(exposure(ledger, "features", clients)["value"].iloc[-1])
    return [_leak(replayed, "ledger", -1, -1, "exposure", "features, latest uploads", value, budget.seed)]


def label_leaks(cases: list[AttackCase], replayed: ReplayedRun, budget: Budget, attack: str) -> list[Leak]:
    """Accuracy of label inference on every message, in percent."""
    leaks = []
    for case in cases:
        problem = build_problem([case], replayed, budget.threat)
        inferred = infer_labels_of_all(problem.model, problem.target, problem.classes, problem.n)
        if inferred is not None:
            accuracy = label_accuracy(case.y, inferred[0])
            leaks.append(_leak(replayed, attack, -1, -1, "label accuracy", "percent", accuracy, budget.seed))
    return leaks


def recovery_leaks(
    done: list[tuple[AttackCase, Recovery]], replayed: ReplayedRun, budget: Budget, attack: str
) -> tuple[list[Leak], list[SkippedMetric]]:
    """Every metric of every image and try; another message with the same image counts as further tries."""
    leaks, skipped = [], []
    tries = dict.fromkeys((image for case, _ in done for image in case.images), 0)
    for case, recovery in done:
        count = len(recovery.x)
        ordered = torch.cat([x[match_rows(case.x, x)] for x in recovery.x])
        true = case.x.repeat(count, *(1 for _ in case.x.shape[1:]))
        for metric in recovery_metrics(case, true, ordered, replayed):
            if isinstance(metric, SkippedMetric):
                skipped.append(metric)
                continue
            for number, values in enumerate(metric.values.reshape(count, -1).tolist()):
                for image, value in zip(case.images, values):
                    image_and_try = image, tries[image] + number
                    name, space = metric.metric, metric.space
                    leaks.append(_leak(replayed, attack, *image_and_try, name, space, value, budget.seed))
        for restart, loss in enumerate(recovery.loss.tolist()):
            leaks.append(_leak(replayed, attack, -1, restart, "matching loss", case.name, loss, budget.seed))
        for image in case.images:
            tries[image] += count
    return leaks, skipped


def best_pictures(done: list[tuple[AttackCase, Recovery]], replayed: ReplayedRun, attack: str) -> list[Pictures]:
    """The try that came closest, for every image; empty if rows are not images."""
    images: list[int] = []
    true: list[Tensor] = []
    recovered: list[Tensor] = []
    for case, recovery in done:
        tries = [x[match_rows(case.x, x)] for x in recovery.x]
        pixels = replayed.unit(case.x)
        if pixels is None or pixels.ndim != 4:
            return []
        in_pixels = [replayed.unit(x.nan_to_num(0.0)) for x in tries]
        stacked = torch.stack([x for x in in_pixels if x is not None])  # [tries, n, C, H, W]
        best = (stacked - pixels).square().flatten(2).mean(2).argmin(0)
        images += case.images
        true.append(pixels.float().cpu())
        recovered.append(stacked[best, torch.arange(len(pixels), device=stacked.device)].float().cpu())
    config = replayed.run.config
    return [
        Pictures(attack, tuple(images), torch.cat(true), torch.cat(recovered), config.label, "none", config.data.name)
    ]
