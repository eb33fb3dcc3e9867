"""Our numbers beside the paper's: differences, marks, rank correlations, speed-ups."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from unskew.compare.comparison_table import ComparisonRow, ComparisonTable
from unskew.config.experiment import Experiment
from unskew.report.speedup import SpeedUp, speed_up
from unskew.reproduce.deviations import is_the_papers, replaced
from unskew.reproduce.paper_names import columns
from unskew.reproduce.paper_numbers import PaperNumber, read
from unskew.reproduce.target_catalogue import Target, targets
from unskew.reproduce.target_plan import TargetPlan
from unskew.results.baseline import is_reference
from unskew.results.run_tables import test_accuracy
from unskew.results.statistics import Difference, Scores, common, difference, mean_and_std

METRIC = "best"  # over the rounds, as the papers have it
NEAR = 3.0  # points; what is further off is marked
FEW = 3  # methods; a rank correlation of fewer says nothing


@dataclass(frozen=True)
class PaperCell:
    """A method in a column: our scores by repetition (a seed on a draw of the split), and what the paper prints."""

    column: str
    method: str
    scores: Scores
    failed: tuple[str, ...] = ()
    printed: PaperNumber | None = None
    factors: tuple[SpeedUp, ...] = ()  # a speed-up per repetition
    played: Experiment | None = None
    exact: bool = True  # played as the paper did; where it was not, a difference is no mark against anyone

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation over repetitions."""
        return mean_and_std(list(self.scores.values()))

    @property
    def difference(self) -> float:
        """Ours less the paper's; nan where one is missing."""
        return self.spread[0] - self.printed.mean if self.printed else math.nan

    @property
    def outside(self) -> bool:
        return self.exact and abs(self.difference) > NEAR

    @property
    def speedup(self) -> tuple[float, bool]:
        """Mean factor, and whether every repetition reached FedAvg's best."""
        return mean_and_std([one.factor for one in self.factors])[0], all(one.reached for one in self.factors)


@dataclass(frozen=True)
class PaperComparison:
    """A table played again; cells in the order of the recipe. own: the method that the paper proposes.

    changed: what was typed and is not as in the paper; replaced: what stands in for the paper's data, model or skew, by
    column.
    """

    name: str
    own: str
    preset: str
    changed: tuple[str, ...]
    cells: tuple[PaperCell, ...]
    missing: tuple[str, ...]
    replaced: dict[str, list[str]] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def of(self, column: str) -> list[PaperCell]:
        return [cell for cell in self.cells if cell.column == column]

    @property
    def speeds(self) -> bool:
        """Whether the paper prints speed-ups here."""
        return any(cell.printed and cell.printed.speedup for cell in self.cells)

    def lead(self, cell: PaperCell) -> Difference | None:
        """The paired difference of the paper's own method to another, over repetitions that both have."""
        own = next((other for other in self.of(cell.column) if other.method == self.own), None)
        if own is None or own is cell or not own.scores.keys() & cell.scores.keys():
            return None
        return difference(own.scores, cell.scores)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation between our order of methods and the paper's, over how many of them, and on how many
    repetitions: those that all have, of those that any has. nan where there is too little."""

    rho: float
    methods: int
    shared: int
    known: int


def ranks(cells: Sequence[PaperCell]) -> RankCorrelation:
    """Over the repetitions that all methods have: a mean over easier draws would rank for no merit."""
    from scipy.stats import spearmanr

    ranked = {cell.method: (cell.scores, cell.printed.mean) for cell in cells if cell.printed and cell.scores}
    if not ranked:
        return RankCorrelation(math.nan, 0, 0, 0)
    shared = common({method: scores for method, (scores, _) in ranked.items()})
    mine = [mean_and_std(list(scores.values()))[0] for scores in shared.values()]
    theirs = [paper for _, paper in ranked.values()]
    counts = len(next(iter(shared.values()))), len(set().union(*(scores for scores, _ in ranked.values())))
    if not counts[0] or len(ranked) < FEW or len(set(mine)) == 1 or len(set(theirs)) == 1:
        return RankCorrelation(math.nan, len(ranked), *counts)
    return RankCorrelation(float(spearmanr(mine, theirs).statistic), len(ranked), *counts)


def beside(plan: TargetPlan, table: ComparisonTable) -> PaperComparison:
    """The finished table of a plan's grid, a column's draws of the split together."""
    printed = read(plan.target.numbers) if plan.target.numbers else {}
    known = elsewhere(plan.target) | printed
    found, others = {}, {}
    for label in dict.fromkeys(column.label for column in plan.columns.values()):
        settings = [setting for setting, column in plan.columns.items() if column.label == label]
        first = next((cell.experiment for cell in plan.grid.cells if cell.setting in settings), None)
        if first and (words := replaced(first, plan.columns[settings[0]].paper)):
            others[label] = words
        for method in plan.grid.compare.methods:
            rows = [row for row in table.rows if row.label == method and row.setting in settings]
            paper = known.get((method, label)) if label not in others else None
            if rows:  # there may be none among recorded runs
                cell = _cell(label, method, rows, table, paper, len(settings))
                found[label, method] = replace(cell, played=first, exact=is_the_papers(plan.changed))
    gone = _not_played(printed, {column for column, _ in found}, plan.absent, set(plan.grid.compare.methods))
    preset, cells = plan.grid.cells[0].experiment.preset, tuple(found.values())
    target, missing = plan.target, (*plan.missing, *gone)
    return PaperComparison(target.name, target.own, preset, plan.changed, cells, missing, others)


def elsewhere(target: Target) -> dict[tuple[str, str], PaperNumber]:
    """What the paper's other tables print, for methods that a person adds to this one: a label means one setting."""
    others = [other.numbers for other in targets().values() if other.paper == target.paper and other.kind == "table"]
    return {key: cell for file in others if file for key, cell in read(file).items()}


def _not_played(
    printed: Iterable[tuple[str, str]], there: set[str], absent: tuple[str, ...], methods: set[str]
) -> list[str]:
    """Cells of the paper's table that nobody asked for: they are named, so that no one takes a part for the whole."""
    whole = list(dict.fromkeys(column for _, column in printed if column not in (*there, *absent)))
    said = [f"{columns(whole)}: not asked for"] if whole else []
    for column in sorted(there):
        if names := [method for method, of in printed if of == column and method not in methods]:
            said.append(f"{columns([column])}, {', '.join(names)}: not asked for")
    return said


def _cell(
    column: str, method: str, rows: list[ComparisonRow], table: ComparisonTable, printed: PaperNumber | None, draws: int
) -> PaperCell:
    scores: dict[int, float] = {}
    failed: list[str] = []
    factors: list[SpeedUp] = []
    for row in rows:
        place = table.settings.index(row.setting)
        scores |= {place * len(table.seeds) + table.seeds.index(seed): v for seed, v in row.scores[METRIC].items()}
        where = f"{row.setting}, " if draws > 1 else ""
        failed += [f"{where}seed {seed} failed: {why}" for seed, why in sorted(row.failed.items())]
        if printed and printed.speedup:
            factors += _factors(row, table)
    return PaperCell(column, method, scores, tuple(failed), printed, tuple(factors))


def _factors(row: ComparisonRow, table: ComparisonTable) -> Iterator[SpeedUp]:
    """By seed, against FedAvg on the same draw; FedAvg's own is 1 by definition."""
    base = next((other for other in table.of(row.setting) if is_reference(other.method)), None)
    curves = {run.config.seed: test_accuracy(run.metrics) for run in base.runs} if base else {}
    for run in row.runs:
        if row is base:
            yield SpeedUp(1.0, True)
        elif run.config.seed in curves:
            yield speed_up(test_accuracy(run.metrics), curves[run.config.seed], run.config.rounds)
