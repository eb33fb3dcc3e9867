"""Compare our numbers with the paper's: differences, marks, rank correlations, speed-ups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from unskew.comparisons.comparison_table import ComparisonRow, ComparisonTable
from unskew.config.experiment import Experiment
from unskew.reports.speedup import SpeedUp, paper_speed_up
from unskew.reproductions.deviations import keeps_experiment, substitutions
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.paper_numbers import PaperNumber, read
from unskew.reproductions.record_runs import SUPERSEDED
from unskew.reproductions.target_catalogue import Target, targets
from unskew.reproductions.target_plan import TargetPlan
from unskew.results.baseline import is_baseline
from unskew.results.learning import has_learnt, majority_sentence
from unskew.results.load_run import LoadedRun
from unskew.results.run_tables import test_accuracy
from unskew.results.statistics import Difference, Scores, common, difference, mean_and_std

METRIC = "best"  # best accuracy over the rounds, as in the papers
TOLERANCE = 3.0  # accuracy points; larger differences are marked
MIN_RANKED = 3  # a rank correlation of fewer methods says nothing


@dataclass(frozen=True)
class PaperCell:
    """A method in a column: our scores by repetition (a seed on a draw of the split), and the printed number."""

    column: str
    method: str
    scores: Scores  # best accuracy over the rounds
    failed: tuple[str, ...] = ()
    printed: PaperNumber | None = None
    speedups: tuple[SpeedUp, ...] = ()  # one per repetition
    experiment: Experiment | None = None
    exact: bool = True  # run with the paper's settings; otherwise a difference is not marked
    final: float = math.nan  # mean accuracy in the last round
    late: float = math.nan  # mean accuracy over the last ten rounds
    learnt: bool = True  # some run is better than always predicting the largest class
    superseded: tuple[str, ...] = ()  # why recorded runs are to be run again

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation over repetitions."""
        return mean_and_std(list(self.scores.values()))

    @property
    def difference(self) -> float:
        """Our mean minus the paper's; nan if either is missing."""
        return self.spread[0] - self.printed.mean if self.printed else math.nan

    @property
    def outside(self) -> bool:
        return self.exact and abs(self.difference) > TOLERANCE

    @property
    def mean_speedup(self) -> tuple[float, bool]:
        """The mean factor, and whether every repetition reached FedAvg's best accuracy."""
        return mean_and_std([one.factor for one in self.speedups])[0], all(one.reached for one in self.speedups)


@dataclass(frozen=True)
class PaperComparison:
    """A reproduced table; cells are in the order of the recipe. proposed: the method that the paper proposes.

    changed: the user's overrides that differ from the paper; substitutions: by column, what replaces the paper's data,
    model or skew.
    """

    name: str
    proposed: str
    preset: str
    changed: tuple[str, ...]
    cells: tuple[PaperCell, ...]
    missing: tuple[MissingCells, ...]
    substitutions: dict[str, list[str]] = field(default_factory=dict)
    preset_changes: tuple[str, ...] = ()  # of a preset that is neither the paper's text nor its code
    majority: str = ""  # a sentence with the accuracy of always predicting the largest class

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def of(self, column: str) -> list[PaperCell]:
        return [cell for cell in self.cells if cell.column == column]

    @property
    def has_speedups(self) -> bool:
        """Whether the paper prints speed-ups in this table."""
        return any(cell.printed and cell.printed.speedup for cell in self.cells)

    def lead(self, cell: PaperCell) -> Difference | None:
        """The paired difference of the paper's own method minus another, over the repetitions that both have."""
        own = next((other for other in self.of(cell.column) if other.method == self.proposed), None)
        if own is None or own is cell or not own.scores.keys() & cell.scores.keys():
            return None
        return difference(own.scores, cell.scores)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation between our order of methods and the paper's.

    rho: nan if there are too few methods, no shared repetitions, no differences between the means, or nothing learnt.
    methods: number of methods ranked; shared: repetitions that all of them have; total: repetitions that any has.
    """

    rho: float
    methods: int
    shared: int
    total: int
    learnt: bool = True  # some method's model is better than always predicting the largest class


def rank_correlation(cells: Sequence[PaperCell]) -> RankCorrelation:
    """Rank on the repetitions that all methods have, because a method with easier draws would rank too high."""
    from scipy.stats import spearmanr

    ranked = {cell.method: (cell.scores, cell.printed.mean) for cell in cells if cell.printed and cell.scores}
    if not ranked:
        return RankCorrelation(math.nan, 0, 0, 0)
    learnt = any(cell.learnt for cell in cells if cell.method in ranked)
    shared = common({method: scores for method, (scores, _) in ranked.items()})
    our_means = [mean_and_std(list(scores.values()))[0] for scores in shared.values()]
    paper_means = [paper for _, paper in ranked.values()]
    counts = len(next(iter(shared.values()))), len(set().union(*(scores for scores, _ in ranked.values())))
    equal = len(set(our_means)) == 1 or len(set(paper_means)) == 1
    if not learnt or not counts[0] or len(ranked) < MIN_RANKED or equal:
        return RankCorrelation(math.nan, len(ranked), *counts, learnt)
    return RankCorrelation(float(spearmanr(our_means, paper_means).statistic), len(ranked), *counts)


def compare_with_paper(plan: TargetPlan, table: ComparisonTable) -> PaperComparison:
    """Compare a plan's finished table with the paper; a column pools its draws of the split."""
    printed = read(plan.target.numbers) if plan.target.numbers else {}
    known = numbers_in_all_tables(plan.target) | printed
    cells, replaced = {}, {}
    for label in dict.fromkeys(column.label for column in plan.columns.values()):
        settings = [setting for setting, column in plan.columns.items() if column.label == label]
        first = next((cell.experiment for cell in plan.grid.cells if cell.setting in settings), None)
        if first and (words := substitutions(first, plan.columns[settings[0]].paper)):
            replaced[label] = words
        for method in plan.grid.compare.methods:
            rows = [row for row in table.rows if row.label == method and row.setting in settings]
            paper = known.get((method, label)) if label not in replaced else None
            if rows:  # recorded runs may lack a method
                cell = _paper_cell(label, method, rows, table, paper, len(settings))
                cells[label, method] = replace(cell, experiment=first, exact=keeps_experiment(plan.changed))
    skipped = _not_requested(printed, {column for column, _ in cells}, plan.absent, set(plan.grid.compare.methods))
    target, missing = plan.target, (*plan.missing, *skipped)
    shown = tuple(cells.values())
    majority = majority_sentence(run for row in table.rows for run in row.runs)
    return PaperComparison(
        target.name, target.proposed, plan.preset, plan.changed, shown, missing, replaced, plan.preset_changes, majority
    )


def numbers_in_all_tables(target: Target) -> dict[tuple[str, str], PaperNumber]:
    """(method, column) -> number from any table of the paper, for methods that the user adds to this one.

    A column's label means the same setting in all of them.
    """
    files = [other.numbers for other in targets().values() if other.paper == target.paper and other.form == "table"]
    return {key: cell for file in files if file for key, cell in read(file).items()}


def _not_requested(
    printed: Iterable[tuple[str, str]], shown: set[str], absent: tuple[str, ...], methods: set[str]
) -> list[MissingCells]:
    """Name the cells of the paper's table that were not requested, so that a part does not look complete."""
    skipped = list(dict.fromkeys(column for _, column in printed if column not in (*shown, *absent)))
    entries = [MissingCells("not requested", tuple(skipped))] if skipped else []
    for column in sorted(shown):
        if names := [method for method, label in printed if label == column and method not in methods]:
            entries.append(MissingCells("not requested", (column,), tuple(names)))
    return entries


def _paper_cell(
    column: str, method: str, rows: list[ComparisonRow], table: ComparisonTable, printed: PaperNumber | None, draws: int
) -> PaperCell:
    scores: dict[int, float] = {}
    failed: list[str] = []
    speedups: list[SpeedUp] = []
    for row in rows:
        index = table.settings.index(row.setting)
        scores |= {index * len(table.seeds) + table.seeds.index(seed): v for seed, v in row.scores[METRIC].items()}
        where = f"{row.setting}, " if draws > 1 else ""
        failed += [f"{where}seed {seed} failed: {why}" for seed, why in sorted(row.failed.items())]
        if printed and printed.speedup:
            speedups += _speedups(row, table)
    final, late = (_mean(value for row in rows for value in row.scores.get(name, {}).values())
                   for name in ("final", "mean_last10"))  # fmt: skip
    learnt = any(has_learnt(run) for row in rows for run in row.runs)
    return PaperCell(
        column,
        method,
        scores,
        tuple(failed),
        printed,
        tuple(speedups),
        final=final,
        late=late,
        learnt=learnt,
        superseded=tuple(dict.fromkeys(why for row in rows for run in row.runs if (why := _why_superseded(run)))),
    )


def _why_superseded(run: LoadedRun) -> str:
    return str(run.environment.get(SUPERSEDED, ""))


def _mean(values: Iterable[float]) -> float:
    return mean_and_std(list(values))[0]


def _speedups(row: ComparisonRow, table: ComparisonTable) -> Iterator[SpeedUp]:
    """One speed-up per seed, relative to FedAvg on the same draw; FedAvg's own is 1 by definition."""
    base = next((other for other in table.of(row.setting) if is_baseline(other.method)), None)
    curves = {run.config.seed: test_accuracy(run.metrics) for run in base.runs} if base else {}
    for run in row.runs:
        if row is base:
            yield SpeedUp(1.0, True)
        elif run.config.seed in curves:
            yield paper_speed_up(test_accuracy(run.metrics), curves[run.config.seed], run.config.rounds)
