"""Scores how close recovered rows are to the true ones; every value comes with its space."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from unskew.audits.attack_cases import AttackCase
from unskew.audits.metrics.lpips import lpips
from unskew.audits.metrics.metric_values import MetricValues, SkippedMetric
from unskew.audits.metrics.psnr import mse, psnr
from unskew.audits.metrics.representation import representation_mse
from unskew.audits.metrics.ssim import ssim
from unskew.audits.replayed_run import ReplayedRun

FAR = 1e30  # error of rows that are not finite: larger than any other


def match_rows(true: Tensor, recovered: Tensor) -> Tensor:
    """[n] the recovered row assigned to each true one such that the total error is smallest.

    The rows of a message have no order, so an attack cannot know it.
    """
    errors = torch.cdist(true.double().flatten(1), recovered.double().flatten(1)).square()
    _, columns = linear_sum_assignment(errors.nan_to_num(FAR, FAR).clamp_max(FAR).cpu().numpy())
    return torch.as_tensor(columns, device=true.device)


def recovery_metrics(
    case: AttackCase, true: Tensor, recovered: Tensor, replayed: ReplayedRun
) -> list[MetricValues | SkippedMetric]:
    """`similarity_metrics`, and the error of the attacked model's last representation."""
    first, *rest = similarity_metrics(true, recovered, replayed)
    return [first, representation_mse(case.replay.model, case.replay.received.model, true, recovered), *rest]


def similarity_metrics(true: Tensor, recovered: Tensor, replayed: ReplayedRun) -> list[MetricValues | SkippedMetric]:
    """Metrics of model inputs [n, ...], and of their pixels clamped to [0, 1] where rows are pixels."""
    metrics: list[MetricValues | SkippedMetric] = [mse(true, recovered, "normalised")]
    true_pixels, recovered_pixels = replayed.unit(true), replayed.unit(recovered)
    if true_pixels is not None and recovered_pixels is not None:
        metrics += [mse(true_pixels, recovered_pixels, "unit"), psnr(true_pixels, recovered_pixels, "unit", 1.0)]
        if true_pixels.ndim == 4:
            metrics += [ssim(true_pixels, recovered_pixels), lpips(true_pixels, recovered_pixels, replayed.data_dir)]
    return metrics
