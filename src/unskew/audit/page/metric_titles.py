"""The metrics that the page knows: their titles, and which way a leak grows."""

from __future__ import annotations

from typing import NamedTuple

from unskew.audit.verdict import CLEAR
from unskew.base.errors import UserError, nearest

RECOGNISABLE = CLEAR  # dB: from here on the page calls an image recovered, and says so


class MetricTitle(NamedTuple):
    """A metric as it is printed. rises: a higher value is a larger leak."""

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
    "label accuracy": MetricTitle("labels named", True, 0, "%"),
    "dcor": MetricTitle("dCor", True, 3),
    "dcor baseline": MetricTitle("dCor at random", True, 3),
    "dcor corrected": MetricTitle("dCor², corrected", True, 3),
    "exposure": MetricTitle("exposure", True, 1, "%"),
    "auc": MetricTitle("membership AUC", True, 3),
    "context accuracy": MetricTitle("context named", True, 0, "%"),
    "tpr@0.1%": MetricTitle("members found at 0.1 % false positives", True, 1, "%"),
    "tpr@1%": MetricTitle("members found at 1 % false positives", True, 1, "%"),
}
NO_LEAKS = ("matching loss",)  # what an attack minimises says nothing about what it found; it stays in the rows


def known(metric: str) -> MetricTitle:
    """The metric of a name."""
    if metric not in METRICS:
        raise UserError(f"metric: expected one of {', '.join(METRICS)}, found {metric!r}{nearest(metric, METRICS)}")
    return METRICS[metric]


def column(metric: str, space: str) -> str:
    """The head of a column: never without the space, and for LPIPS never without the backbone.

    >>> column("psnr", "unit, range 1"), column("lpips", "alex")
    ('PSNR, dB (unit, range 1)', 'LPIPS (alex)')
    """
    found = known(metric)
    where = f" ({space})" if space not in ("", "percent") else ""
    return found.title + (f", {found.unit}" if found.unit else "") + where
