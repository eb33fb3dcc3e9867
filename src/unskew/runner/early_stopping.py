"""Early stopping: a pure function of the rows so far, so that a resumed run decides the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from unskew.base.errors import UserError
from unskew.config.stop_config import StopConfig
from unskew.data import Dataset
from unskew.results.metric_rows import MetricRow


class EarlyStopping:
    """The rule, the scores so far, and the reason to stop once there is one; without a rule there is never one."""

    def __init__(self, config: StopConfig | None, dataset: Dataset) -> None:
        self._config, self._scores = config, list[tuple[int, float]]()
        held_out = dataset.validation is not None
        default = "validation/accuracy" if held_out else "test/accuracy"
        self.metric = (config and config.metric) or default
        split, _, number = self.metric.partition("/accuracy/")
        if split.startswith("validation") and not held_out:
            raise UserError(
                f"stop.metric: expected held-out rows for {self.metric}, found none; type data.validation=0.1"
            )
        if number and int(number) >= dataset.num_classes:
            raise UserError(f"stop.metric: expected a class in 0..{dataset.num_classes - 1}, found {self.metric}")

    def add(self, rows: Iterable[MetricRow]) -> None:
        """Add rows in the order of the rounds; round 0, the untrained model, does not count."""
        self._scores += [
            (row.round, row.value)
            for row in rows
            if row.round > 0 and row.who == "server" and f"{row.split}/{row.metric}" == self.metric
        ]

    @property
    def reason(self) -> str:
        """Why the run stops, empty while it continues."""
        return reason_to_stop(self._config, self.metric, self._scores) if self._config else ""

    @property
    def header(self) -> list[str]:
        """The line about early stopping in the header of the run."""
        if self._config is None:
            return []
        patience, target = self._config.patience, self._config.target
        rules = [f"has not improved for {patience} evaluations"] if patience else []
        rules += [f"reaches {target:g}"] if target is not None else []
        leak = (
            ""
            if self.metric.startswith("validation/")
            else "; choosing the round on the test rows makes their scores optimistic"
        )
        return [f"stop       when {self.metric} {' or '.join(rules)}{leak}"]


def reason_to_stop(config: StopConfig, metric: str, scores: Sequence[tuple[int, float]]) -> str:
    """Why to stop after the last of these evaluations (round, value), or an empty string.

    >>> reason_to_stop(StopConfig(patience=2), "test/accuracy", [(1, 50.0), (2, 60.0), (3, 60.0), (4, 59.0)])
    'test/accuracy was not better than the 60 of round 2 in 2 evaluations'
    >>> reason_to_stop(StopConfig(target=0.5), "test/loss", [(1, 0.6), (2, 0.4)])
    'test/loss is 0.4 and reached 0.5'
    """
    if not scores:
        return ""
    sign, last = -1.0 if metric.endswith("/loss") else 1.0, scores[-1][1]
    if config.target is not None and sign * last >= sign * config.target:
        return f"{metric} is {last:g} and reached {config.target:g}"
    best = 0
    for i, (_, value) in enumerate(scores):
        if sign * value > sign * scores[best][1] or math.isnan(scores[best][1]):
            best = i
    waited, (round, value) = len(scores) - 1 - best, scores[best]
    if config.patience is not None and waited >= config.patience:
        return f"{metric} was not better than the {value:g} of round {round} in {waited} evaluations"
    return ""
