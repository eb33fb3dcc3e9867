"""Metric rows of a round: scores of the server's model and losses of the clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from unskew.engines.engine import ConfusionScore
from unskew.server.snapshot import RoundReport


class MetricRow(NamedTuple):
    """One number of a run."""

    run: str
    method: str
    seed: int
    round: int
    who: str
    split: str
    metric: str
    value: float


@dataclass(frozen=True)
class MetricRows:
    """Rows of one run: run, method, seed, round, who, split, metric, value."""

    run: str
    method: str
    seed: int

    def score_rows(self, round: int, scores: dict[str, ConfusionScore], prefix: str = "") -> Iterator[MetricRow]:
        """Accuracy in percent, mean loss, accuracy by class and the histogram of predictions."""
        for split, score in scores.items():
            confusion, total = score.confusion.double(), float(score.confusion.sum())
            by_class = 100 * confusion.diagonal() / confusion.sum(1)
            values = {"accuracy": accuracy(score), "loss": score.loss / max(total, 1)}
            values |= {f"accuracy/{c}": float(v) for c, v in enumerate(by_class) if confusion[c].sum() > 0}
            values |= {f"predicted/{c}": float(v) for c, v in enumerate(confusion.sum(0))}
            for metric, value in values.items():
                yield self._row(round, "server", split, prefix + metric, value)

    def client_rows(self, round: int, accuracies: Mapping[int, float], prefix: str = "") -> Iterator[MetricRow]:
        """The accuracy for each client in percent."""
        for client, value in accuracies.items():
            yield self._row(round, f"client-{client}", "test", f"{prefix}accuracy", value)

    def report_rows(self, round: int, report: RoundReport) -> Iterator[MetricRow]:
        """Each client's mean loss terms and logged numbers, refused clients, rounds below the quorum, and numbers
        of the parts about the server."""
        for client, terms in report.terms.items():
            for name, value in terms.items():
                part, _, number = name.partition(" ")
                metric = f"{part}/{number}" if number else f"loss/{part}"
                yield self._row(round, f"client-{client}", "train", metric, value)
        for client in report.refused_clients:
            yield self._row(round, f"client-{client}", "train", "dropped", 1.0)  # the metric's name in saved runs
        if report.below_quorum:
            yield self._row(round, "server", "train", "below quorum", 1.0)
        for metric, value in report.numbers.items():
            yield self._row(round, "server", "train", metric, value)

    def _row(self, round: int, who: str, split: str, metric: str, value: float) -> MetricRow:
        return MetricRow(self.run, self.method, self.seed, round, who, split, metric, value)


def accuracy(score: ConfusionScore) -> float:
    """Accuracy in percent."""
    return 100.0 * float(score.confusion.diagonal().sum()) / max(float(score.confusion.sum()), 1.0)
