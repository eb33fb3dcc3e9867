"""The metrics that the page knows: their titles, and whether a higher value is a larger leak."""

from __future__ import annotations

from typing import NamedTuple

from unskew.audits.verdict import RECOGNISABLE_PSNR
from unskew.base.errors import UserError, expected_one_of

RECOGNISABLE = RECOGNISABLE_PSNR  # dB from which the page counts an image as recovered


class MetricTitle(NamedTuple):
    """How a metric is printed. rises: a higher value is a larger leak."""

    title: str
    rises: bool
    digits: int
    unit: str = ""


METRICS = {
    "psnr": MetricTitle("PSNR", True, 1, "dB"),
    "mse": MetricTitle("MSE", False, 4),
    "ssim": MetricTitle("SSIM", True, 3),
    "lpips": MetricTitle("LPIPS", False, 3),
    "mse-r": MetricTitle("MSE-R", False, 4),
    "label accuracy": MetricTitle("label accuracy", True, 0, "%"),
    "dcor": MetricTitle("dCor", True, 3),
    "dcor baseline": MetricTitle("dCor, permuted", True, 3),
    "dcor corrected": MetricTitle("dCor², corrected", True, 3),
    "exposure": MetricTitle("exposure", True, 1, "%"),
    "auc": MetricTitle("membership AUC", True, 3),
    "context accuracy": MetricTitle("context accuracy", True, 0, "%"),
    "tpr@0.1%": MetricTitle("TPR at 0.1 % FPR", True, 1, "%"),
    "tpr@1%": MetricTitle("TPR at 1 % FPR", True, 1, "%"),
}
NO_LEAKS = ("matching loss",)  # the attack's own objective is saved, but it does not measure what was recovered


def metric_title(metric: str) -> MetricTitle:
    """The title of a metric, or a UserError with the known names."""
    if metric not in METRICS:
        raise UserError(f"metric: {expected_one_of(METRICS, metric)}")
    return METRICS[metric]


def column_title(metric: str, space: str) -> str:
    """The header of a column, always with the metric's space, which for LPIPS is the backbone.

    >>> column_title("psnr", "unit, range 1"), column_title("lpips", "alex")
    ('PSNR, dB (unit, range 1)', 'LPIPS (alex)')
    """
    printed = metric_title(metric)
    suffix = f" ({space})" if space not in ("", "percent") else ""
    return printed.title + (f", {printed.unit}" if printed.unit else "") + suffix
