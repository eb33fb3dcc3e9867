"""Describe a split before training: labels per client, classes covered by a round's cohort, its steps and padding.

Warns of clients with too few rows and of cohorts that see too few classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.per_client import MANY_CLIENTS, STATISTICS_CLIENTS
from unskew.config.experiment import Experiment
from unskew.data import label_skew, load_labels
from unskew.engines.stacked.widths import widths
from unskew.protocol.work import Work
from unskew.runner.prepare_run import cohort_size_warning, read_data, split_and_sample
from unskew.server.sampling import Sampling

Counts = NDArray[np.int64]
MAX_ROUNDS = 200  # rounds whose cohorts are inspected
MAX_CLIENTS = 100_000  # inspected in those rounds together
MAX_GENERATED_CLIENTS = 5_000  # the same with more than MANY_CLIENTS clients, whose rows are generated on demand
MAX_PADDING_ROUNDS = 3  # for the padding, which takes longer to compute


@dataclass(frozen=True)
class CohortStats:
    """What a round's participants hold together; numbers of classes are shares of all classes."""

    size: int
    expected: float  # mean share of classes in a cohort drawn from all clients
    lowest: float  # lowest share in the inspected rounds
    lowest_round: int
    emd: float  # L1 distance of a cohort's label mix to the overall mix, mean over the inspected rounds


@dataclass(frozen=True)
class StepStats:
    """The work of a round, in steps."""

    longest: int
    median: float
    total: float  # mean over cohorts
    padding: float  # share of the rows that the stacked engine computes as padding


@dataclass(frozen=True)
class SplitDescription:
    """Everything that `unskew partition` shows."""

    data: str
    clients: int
    counted: Sequence[int]  # clients with a row in counts: all, unless there are too many
    counts: Counts  # [counted, classes]
    participants: int  # inspected per round: all, unless there are too many
    classes: tuple[str, ...]
    header: list[str]
    cohorts: CohortStats
    steps: StepStats
    warnings: list[str]

    def numbers(self) -> dict[str, Any]:
        """One flat record for scripts."""
        cohorts = {f"cohort_{key}": value for key, value in vars(self.cohorts).items()}
        steps = {f"steps_{key}": value for key, value in vars(self.steps).items()}
        more = {"participants_inspected": self.participants, "warnings": self.warnings}
        return label_skew.summary(self.counts) | {"clients": self.clients} | cohorts | steps | more


def describe(experiment: Experiment, data_dir: Path | None = None) -> SplitDescription:
    """Describe the split that a run of this experiment would use; builds no model."""
    # Cheap checks first, as in a run.
    method = experiment.create_method().build(experiment.local.work(1, experiment.rounds))
    dataset = read_data(experiment, data_dir, load=load_labels)
    split = split_and_sample(experiment, dataset, data_dir)
    parts, task, sampling, counts = split.parts, split.task, split.sampling, split.counts
    names, clients, labels = tuple(dataset.classes), task.clients, dataset.train.y.numpy()
    size, limited = sampling.clients_per_round, _limit_cohort(sampling)
    max_rounds = (MAX_GENERATED_CLIENTS if clients > MANY_CLIENTS else MAX_CLIENTS) // limited.clients_per_round
    inspected = range(1, max(min(experiment.rounds, MAX_ROUNDS, max_rounds), 1) + 1)
    rounds = [
        label_skew.counts([parts.rows[k] for k in limited.sampled(round)], labels, len(names)) for round in inspected
    ]
    cohorts = _cohorts(counts, rounds, clients, size)
    work = method.at_round(1, task)[1]
    header = [
        f"data       {dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test rows, "
        f"{len(names)} classes",
        *(f"partition  {line}" for line in label_skew.describe(counts, parts.notes, work.batch, clients)),
    ]
    steps = _steps(counts, rounds, work, size / limited.clients_per_round)
    messages = [*warnings(counts, cohorts), *cohort_size_warning(sampling)]
    return SplitDescription(
        dataset.name, clients, split.counted, counts, limited.clients_per_round, names, header, cohorts, steps, messages
    )


def _limit_cohort(sampling: Sampling) -> Sampling:
    """Limit the clients per round to STATISTICS_CLIENTS: those that the sampling itself draws first."""
    if sampling.clients <= MANY_CLIENTS or sampling.clients_per_round <= STATISTICS_CLIENTS:
        return sampling
    return replace(sampling, participation=(STATISTICS_CLIENTS + 0.5) / sampling.clients)  # + 0.5 against rounding down


def _cohorts(counts: Counts, rounds: list[Counts], clients: int, size: int) -> CohortStats:
    """counts: of the inspected clients; rounds: counts of each round's participants."""
    held = (counts > 0).sum(axis=0) * clients // len(counts)
    missing = _never_drawn(clients, held, size)
    pooled = np.array([cohort.sum(axis=0) for cohort in rounds])
    share = (pooled > 0).mean(axis=1)
    overall = counts.sum(axis=0) / max(int(counts.sum()), 1)
    mix = pooled / np.maximum(pooled.sum(axis=1, keepdims=True), 1)
    worst = int(share.argmin())
    distance = np.abs(mix - overall).sum(axis=1).mean()
    return CohortStats(size, float(1 - missing.mean()), float(share[worst]), worst + 1, float(distance))


def _never_drawn(clients: int, holders: Counts, size: int) -> NDArray[np.float64]:
    """Probability that `size` of `clients`, drawn without replacement, include no holder of a class."""
    drawn = np.arange(size)
    factors = np.clip((clients - holders[:, None] - drawn) / (clients - drawn), 0, None)
    return factors.prod(axis=1)


def _steps(counts: Counts, rounds: list[Counts], work: Work, scale: float = 1.0) -> StepStats:
    """scale: participants of a round divided by those inspected."""
    steps = _steps_of(counts, work)
    steps_by_round = [_steps_of(cohort, work) for cohort in rounds]
    needed = computed = 0
    for cohort, steps_by_client in list(zip(rounds, steps_by_round))[:MAX_PADDING_ROUNDS]:
        active = sorted((int(s) for s in steps_by_client if s), reverse=True)
        needed += sum(work.rows_for(int(rows)) for rows in cohort.sum(axis=1))
        computed += sum(widths(active)) * work.batch
    total = np.mean([cohort.sum() for cohort in steps_by_round]) * scale
    return StepStats(int(steps.max()), float(np.median(steps)), float(total), 1 - needed / max(computed, 1))


def _steps_of(counts: Counts, work: Work) -> Counts:
    return np.array([work.steps_for(int(rows)) for rows in counts.sum(axis=1)], np.int64)


def warnings(counts: Counts, cohorts: CohortStats) -> list[str]:
    """Warnings about splits that cannot work or will work badly."""
    sizes, classes, lines = counts.sum(axis=1), counts.shape[1], []
    unheld = np.flatnonzero(counts.sum(axis=0) == 0).tolist()
    if unheld:
        lines.append(f"no client holds classes {unheld}: no method can learn them")
    held = classes - len(unheld)
    if cohorts.expected * classes < held - 0.05:
        lines.append(
            f"a round's {cohorts.size} participants hold {cohorts.expected * classes:.1f} of {classes} classes on "
            f"average, and {cohorts.lowest * classes:.0f} in round {cohorts.lowest_round}: the model is not trained "
            "on the others in that round and tends to forget them; raise participation or choose a method for this"
        )
    if cohorts.size == 1 and len(counts) > 1:
        lines.append("one participant per round: nothing is averaged; raise participation")
    if len(counts) > 1 and sizes.max() > sizes.sum() / 2:
        lines.append(
            f"client {int(sizes.argmax())} holds {sizes.max() / sizes.sum():.0%} of all rows and dominates the average"
        )
    single = int((sizes == 1).sum())
    if single:
        lines.append(f"{single} clients hold a single row, which has no variance for BatchNorm")
    return lines
