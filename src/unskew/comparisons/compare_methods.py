"""`us.compare`: run a grid, write its table and report, and return both; `unskew compare` calls it too."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import UserError
from unskew.base.paths import folder_path
from unskew.comparisons import grid as grids
from unskew.comparisons import run_grid
from unskew.comparisons.cells import GridProgress
from unskew.comparisons.grid import Grid
from unskew.comparisons.progress import grid_progress
from unskew.config.experiment import Experiment

if TYPE_CHECKING:
    import pandas as pd
    from torch import nn

    from unskew.comparisons.comparison_table import ComparisonTable
    from unskew.data import Dataset
    from unskew.reports.report_page import ExtraSection
    from unskew.results.load_run import LoadedRun

AuditGrid = Callable[[Path, "ComparisonTable"], tuple["ExtraSection", Path]]


@dataclass(frozen=True)
class Comparison:
    """A finished comparison: its numbers, and the files in its folder."""

    folder: Path
    table: ComparisonTable
    report: Path
    audit: Path | None = None  # the page of the demo's attacks

    @property
    def finding(self) -> str:
        """Which method leads and how certain that is, a line per setting."""
        from unskew.comparisons.finding_per_setting import findings_text

        return findings_text(self.table)

    @property
    def frame(self) -> pd.DataFrame:
        """The table with a row per setting and method, as in `table.csv`."""
        import pandas as pd

        from unskew.comparisons.write_comparison import to_csv

        return pd.read_csv(io.StringIO(to_csv(self.table)))

    @property
    def runs(self) -> tuple[LoadedRun, ...]:
        """The runs of all rows."""
        return tuple(run for row in self.table.rows for run in row.runs)

    @property
    def failed(self) -> dict[str, str]:
        """Reason by method and seed of the runs that failed."""
        return {f"{row.label}, seed {seed}": why for row in self.table.rows for seed, why in row.failed.items()}

    def __repr__(self) -> str:
        from unskew.comparisons.write_comparison import to_text

        return f"{to_text(self.table)}\n{self.finding}\nreport: {self.report}"

    def _repr_html_(self) -> str:
        from unskew.comparisons.write_comparison import to_html

        return to_html(self.table, self.finding, self.report)


def compare(
    recipe: str | Path | Experiment,
    *,
    methods: Sequence[Any] | dict[str, Any] | str | None = None,
    seeds: Sequence[int] | str | int | None = None,
    settings: dict[str, dict[str, Any]] | None = None,
    tune: dict[str, dict[str, list[Any]]] | None = None,
    metric: str | None = None,
    select: str | None = None,
    overrides: Sequence[str] = (),
    jobs: int | None = None,
    out: str | Path | None = None,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: str | Path | None = None,
    show: bool | None = None,
) -> Comparison:
    """Run every method x setting x seed that is missing, and write table, finding and report to a folder.

    recipe: the name or path of a recipe, or an Experiment, of which the method and the seed are replaced;
    methods: such as ["fedavg", {"fedprox": {"mu": 0.5}}], or by label as {"two terms": "fedprox+moon"};
    settings: such as {"alpha 0.1": {"partition.alpha": 0.1}}; tune: such as {"fedprox": {"method.prox.mu": [0.1, 1]}};
    methods, seeds, settings, tune, metric, select: replace keys of the recipe's section `compare`;
    overrides: such as ["local.lr=0.1"]; out: the folder, by default runs/compare-RECIPE;
    jobs: parallel runs, by default one per core, six on a GPU;
    data, model: as for `us.run`; with them, or with a method defined in a notebook, all cells run one after another in
    this process; data_dir: dataset folder, by default $UNSKEW_DATA;
    show: whether to show the progress; None shows it in notebooks and terminals.
    """
    if jobs is not None and jobs < 1:
        raise UserError(f"jobs: expected at least 1, found {jobs!r}")
    options = {
        "methods": _as_list(methods),
        "seeds": _seeds(seeds),
        "settings": settings,
        "tune": tune,
        "metric": metric,
        "select": select,
    }
    given = {key: value for key, value in options.items() if value is not None}
    inputs = {"data": data.name} if data is not None else {}
    inputs |= {"model": "custom"} if model is not None else {}
    grid = grids.load(recipe, [*overrides], given, inputs)
    passed = [name for name, value in (("data", data), ("model", model)) if value is not None]
    for changes in (*grid.compare.settings.values(), *grid.compare.tune.values()):
        if clash := next((key for key in changes if key.partition(".")[0] in passed and "augment" not in key), None):
            section = clash.partition(".")[0]
            raise UserError(f"settings or tune: {clash} cannot be changed, because {section}= was passed from Python")
    if metric and grid.compare.select:
        raise UserError(
            "metric: with select the metric is always the test accuracy at the selected round; drop one of the two"
        )
    folder = Path("runs") / f"compare-{grid.name}" if out is None else folder_path(out)
    root = Path(data_dir) if data_dir else None
    return run_comparison(grid, folder, grid_progress(show), jobs=jobs, data=data, model=model, data_dir=root)


def _as_list(methods: Sequence[Any] | dict[str, Any] | str | None) -> list[Any] | None:
    if isinstance(methods, dict):
        return [{label: method} for label, method in methods.items()]
    if isinstance(methods, str):
        return [name.strip() for name in methods.split(",")]
    if not isinstance(methods, Iterable | None):
        raise UserError(f"methods: expected a list such as ['fedavg', 'fedprox'], found {methods!r}")
    return None if methods is None else list(methods)


def _seeds(seeds: Any) -> list[int] | str | None:
    several = [seeds] if isinstance(seeds, Integral) else seeds
    if isinstance(several, str | None):
        return several
    if not isinstance(several, Iterable) or not all(isinstance(seed, Integral) for seed in several):
        raise UserError(f"seeds: expected whole numbers such as [0, 1, 2] or '0-2', found {seeds!r}")
    return [int(seed) for seed in several]


def run_comparison(
    grid: Grid,
    out: Path,
    progress: GridProgress,
    *,
    jobs: int | None = None,
    data: Dataset | None = None,
    model: nn.Sequential | None = None,
    data_dir: Path | None = None,
    audit: AuditGrid | None = None,
) -> Comparison:
    """Run a grid and write its table and report.

    audit: attacks the runs; returns a section for the report and a page of its own.
    """
    table = run_grid.run(grid, out, progress, jobs=jobs, data=data, model=model, data_dir=data_dir)
    audit_section, audit_page = audit(out, table) if audit else (None, None)
    return Comparison(out, table, run_grid.write_report(table, out, audit_section), audit_page)
