"""Example input of the audit page, made by hand from real digits."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from unskew.audits.leak import KindVerdict, Leak, Pictures
from unskew.audits.membership.membership_attack import MembershipResult
from unskew.audits.membership.roc import roc
from unskew.audits.metrics.metric_values import SkippedMetric
from unskew.audits.metrics.psnr import mse, psnr
from unskew.audits.page.page_input import PageInput, RocCurve, RunUtility
from unskew.data.digits import digits
from unskew.reports.run_facts import Fact

IMAGES = 12
# method, defence, attack -> size of the error in its recovered images
TRIES = {
    ("fedavg", "none", "dlg"): 0.06,
    ("fedavg", "none", "ig"): 0.015,
    ("fedavg", "noise 0.01", "ig"): 0.9,
    ("fedavg", "prune 90 %", "ig"): 0.16,
}
UTILITIES = (
    RunUtility("fedavg", "none", "digits", 0, 93.4, 5.2e6),
    RunUtility("fedavg", "noise 0.01", "digits", 0, 88.1, 5.2e6),
    RunUtility("fedavg", "prune 90 %", "digits", 0, 91.0, 0.9e6),
    RunUtility("scaffold", "none", "digits", 0, 94.0, 10.4e6),
)


@cache
def example_page() -> PageInput:
    """Four runs, two attacks, membership inference, and an artefact kind without an attack."""
    data = digits()
    true, generator = data.train.x[:IMAGES], torch.Generator().manual_seed(0)
    leaks, pictures = [], []
    for (method, defence, attack), size in TRIES.items():
        best = None
        for restart in range(2):
            noise = (
                torch.randn(true.shape, generator=generator)
                * size
                * (0.5 + torch.rand(IMAGES, 1, 1, 1, generator=generator))
            )
            tried = (true + (1 + restart) * noise).clamp(0, 1)
            best = tried if best is None else best
            for metric in (psnr(true, tried, "unit", 1.0), mse(true, tried, "unit")):
                leaks += [
                    Leak(method, defence, attack, "digits", i, restart, metric.metric, metric.space, float(v), 0)
                    for i, v in enumerate(metric.values)
                ]
        assert best is not None
        pictures.append(Pictures(attack, tuple(range(IMAGES)), true, best, method, defence, "digits"))
    leaks.append(Leak("fedavg", "none", "label inference", "digits", -1, -1, "label accuracy", "percent", 100.0, 0))
    return PageInput(
        title="What FedAvg gives away on digits",
        runs=UTILITIES,
        verdicts=(
            KindVerdict(
                "labels", "recovered", "All labels of a batch are read off the last layer's gradient.", "fedavg"
            ),
            KindVerdict("weights", "recovered", "Images come back from one local step of batch 1.", "fedavg"),
            KindVerdict(
                "weights", "resisted", "ig, 2 restarts of 400 iterations: nothing above 20 dB.", "fedavg + noise 0.01"
            ),
            KindVerdict("control", "unknown", "SCAFFOLD's variates left; no attack is known here yet.", "scaffold"),
        ),
        leaks=tuple(leaks),
        pictures=tuple(pictures),
        curves=(_curve("none", 1.2), _curve("noise 0.01", 0.2)),
        skipped=(SkippedMetric("lpips", "AlexNet needs images of at least 31 × 31 pixels, these are 1 × 8 × 8"),),
        facts=(
            Fact("threat model", ("honest-but-curious server: sees each message; knows model, batch size, steps",)),
            Fact("budget", ("dlg: 2 restarts of 100 steps of L-BFGS", "ig: 2 restarts of 400 iterations")),
        ),
    )


def _curve(defence: str, shift: float) -> RocCurve:
    rng = np.random.default_rng(0)
    scores = rng.normal(shift, 1.2, 400), rng.normal(0, 1, 700)
    return RocCurve("fedavg", defence, "digits", MembershipResult("shadow models", roc(*scores, draws=50)))
