"""Who holds what, before anything is trained: the split of a recipe, what a round's cohort holds, the work ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.per_client import LOOKED_AT, MANY
from unskew.config.experiment import Experiment
from unskew.data import label_skew, load_labels
from unskew.engines.stacked.widths import widths
from unskew.protocol.work import Work
from unskew.runner.prepare_run import deal, read_data, too_many
from unskew.server.sampling import Sampling

Counts = NDArray[np.int64]
ROUNDS_LOOKED_AT = 200  # of the plan, for what cohorts hold
CLIENTS_LOOKED_AT = 100_000  # in those rounds together
RULES_LOOKED_AT = 5_000  # the same where clients are too many for a list, because rows are then drawn for each of them
ROUNDS_STACKED = 3  # for the padding, which takes longer to work out


@dataclass(frozen=True)
class CohortStats:
    """What the participants of a round hold together; classes as shares of all classes."""

    size: int
    expected: float  # mean share of classes in a cohort drawn from all clients
    lowest: float  # in the rounds of this plan
    lowest_round: int
    emd: float  # distance of a cohort's mix to the overall mix, mean over the plan's rounds


@dataclass(frozen=True)
class StepStats:
    """The work of a round."""

    longest: int
    median: float
    total: float  # of a cohort, on average
    padding: float  # share of the rows that the stacked engine computes and nobody trains on


@dataclass(frozen=True)
class SplitDescription:
    """Everything that `unskew partition` shows."""

    data: str
    clients: int
    counted: Sequence[int]  # clients with a line in counts: all, unless there are too many
    counts: Counts  # [counted, classes]
    participants: int  # of a round, those looked at: all, unless there are too many
    classes: tuple[str, ...]
    header: list[str]
    cohorts: CohortStats
    steps: StepStats
    warnings: list[str]

    def numbers(self) -> dict[str, Any]:
        """One flat record for scripts."""
        cohorts = {f"cohort_{key}": value for key, value in vars(self.cohorts).items()}
        steps = {f"steps_{key}": value for key, value in vars(self.steps).items()}
        told = {"participants_looked_at": self.participants, "warnings": self.warnings}
        return label_skew.summary(self.counts) | {"clients": self.clients} | cohorts | steps | told


def look(experiment: Experiment, data_dir: Path | None = None) -> SplitDescription:
    """The split as a run of this experiment would make it, without a model."""
    # Cheap checks first, as in a run.
    method = experiment.create_method().build(experiment.local.work(1, experiment.rounds))
    dataset = read_data(experiment, data_dir, load=load_labels)
    dealt = deal(experiment, dataset, data_dir)
    parts, task, sampling, counts = dealt.parts, dealt.task, dealt.sampling, dealt.counts
    names, clients, labels = tuple(dataset.classes), task.clients, dataset.train.y.numpy()
    size, few = sampling.cohort, _narrowed(sampling)
    most = (RULES_LOOKED_AT if clients > MANY else CLIENTS_LOOKED_AT) // few.cohort
    looked = range(1, max(min(experiment.rounds, ROUNDS_LOOKED_AT, most), 1) + 1)
    rounds = [label_skew.counts([parts.rows[k] for k in few.sampled(round)], labels, len(names)) for round in looked]
    cohorts = _cohorts(counts, rounds, clients, size)
    work = method.at_round(1, task)[1]
    header = [
        f"data       {dataset.name}: {len(dataset.train):,} training and {len(dataset.test):,} test rows, "
        f"{len(names)} classes",
        *(f"partition  {line}" for line in label_skew.describe(counts, parts.notes, work.batch, clients)),
    ]
    steps = _steps(counts, rounds, work, size / few.cohort)
    told = [*warnings(counts, cohorts), *too_many(sampling)]
    return SplitDescription(
        dataset.name, clients, dealt.counted, counts, few.cohort, names, header, cohorts, steps, told
    )


def _narrowed(sampling: Sampling) -> Sampling:
    """Few enough clients a round to look at: those that the sampling itself draws first."""
    if sampling.clients <= MANY or sampling.cohort <= LOOKED_AT:
        return sampling
    return replace(sampling, participation=(LOOKED_AT + 0.5) / sampling.clients)  # the half against rounding down


def _cohorts(counts: Counts, rounds: list[Counts], clients: int, size: int) -> CohortStats:
    """counts: of the clients looked at; rounds: of each round's participants."""
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
    """Chance that `size` of `clients`, drawn without replacement, leave out all holders of a class."""
    drawn = np.arange(size)
    factors = np.clip((clients - holders[:, None] - drawn) / (clients - drawn), 0, None)
    return factors.prod(axis=1)


def _steps(counts: Counts, rounds: list[Counts], work: Work, times: float = 1.0) -> StepStats:
    """times: participants for each one in rounds."""
    steps = _steps_of(counts, work)
    each = [_steps_of(cohort, work) for cohort in rounds]
    needed = computed = 0
    for cohort, found in list(zip(rounds, each))[:ROUNDS_STACKED]:
        active = sorted((int(s) for s in found if s), reverse=True)
        needed += sum(work.rows_for(int(rows)) for rows in cohort.sum(axis=1))
        computed += sum(widths(active)) * work.batch
    total = np.mean([cohort.sum() for cohort in each]) * times
    return StepStats(int(steps.max()), float(np.median(steps)), float(total), 1 - needed / max(computed, 1))


def _steps_of(counts: Counts, work: Work) -> Counts:
    return np.array([work.steps_for(int(rows)) for rows in counts.sum(axis=1)], np.int64)


def warnings(counts: Counts, cohorts: CohortStats) -> list[str]:
    """What cannot work, or will work badly, in words."""
    sizes, classes, told = counts.sum(axis=1), counts.shape[1], []
    unheld = np.flatnonzero(counts.sum(axis=0) == 0).tolist()
    if unheld:
        told.append(f"no client holds classes {unheld}: no method can learn them")
    held = classes - len(unheld)
    if cohorts.expected * classes < held - 0.05:
        told.append(
            f"a round's {cohorts.size} participants hold {cohorts.expected * classes:.1f} of {classes} classes on "
            f"average, and {cohorts.lowest * classes:.0f} in round {cohorts.lowest_round}: nobody trains on the others "
            "in that round, and the model tends to forget them; raise participation, or choose a method made for that"
        )
    if cohorts.size == 1 and len(counts) > 1:
        told.append("one participant a round: nothing is averaged; raise participation")
    if len(counts) > 1 and sizes.max() > sizes.sum() / 2:
        told.append(
            f"client {int(sizes.argmax())} holds {sizes.max() / sizes.sum():.0%} of all rows and decides the mean"
        )
    single = int((sizes == 1).sum())
    if single:
        told.append(f"{single} clients hold a single row: behind BatchNorm it has no variance")
    return told
