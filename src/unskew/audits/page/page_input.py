"""Input of the audit page: runs with their utility and bytes, and the results of their audits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unskew.audits.leak import KindVerdict, Leak, Pictures
from unskew.audits.membership.membership_attack import MembershipResult
from unskew.audits.metrics.metric_values import SkippedMetric
from unskew.reports.run_facts import Fact

if TYPE_CHECKING:
    from unskew.results.load_run import LoadedRun


@dataclass(frozen=True)
class RunUtility:
    """One run: accuracy in percent, and the bytes sent in both directions over all clients."""

    method: str
    defence: str
    dataset: str
    seed: int
    accuracy: float
    bytes: float

    @classmethod
    def of(cls, run: LoadedRun, defence: str = "") -> RunUtility:
        """Utility of a finished run: mean accuracy of its last ten rounds."""
        total = run.summary.bytes_up + run.summary.bytes_down
        return cls(
            run.config.label, defence, run.config.data.name, run.config.seed, run.summary.mean_last10, float(total)
        )


@dataclass(frozen=True)
class RocCurve:
    """The result of membership inference on one run."""

    method: str
    defence: str
    dataset: str
    result: MembershipResult


@dataclass(frozen=True)
class PageInput:
    """Everything that the page shows. facts: threat models, budgets, and how local training was modelled."""

    title: str
    runs: tuple[RunUtility, ...]
    verdicts: tuple[KindVerdict, ...] = ()
    leaks: tuple[Leak, ...] = ()
    pictures: tuple[Pictures, ...] = ()
    curves: tuple[RocCurve, ...] = ()
    skipped: tuple[SkippedMetric, ...] = ()
    facts: tuple[Fact, ...] = ()


def label(method: str, defence: str) -> str:
    """The name of a run on the page.

    >>> label("fedavg", "noise"), label("fedavg", "none")
    ('fedavg + noise', 'fedavg')
    """
    return f"{method} + {defence}" if defence not in ("", "none") else method
