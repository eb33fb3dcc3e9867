"""`us.reproduce`: run a paper's table or figure and compare the numbers; `unskew reproduce` calls it too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from unskew.base.errors import UserError
from unskew.base.notebook import html_table
from unskew.base.paths import folder_path
from unskew.comparisons.folder_lock import check_grid_folder
from unskew.comparisons.grid import parse_seeds
from unskew.comparisons.progress import grid_progress
from unskew.reproductions import figure_table, preflight, read_recorded, run_target, target_catalogue
from unskew.reproductions import record_audits as audit_records
from unskew.reproductions import record_runs as run_records
from unskew.reproductions import target_plan as plans
from unskew.reproductions.command_line import command_for
from unskew.reproductions.compare_to_paper import PaperComparison, rank_correlation
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.run_target import TargetRuns
from unskew.reproductions.shipped_results import results_folder
from unskew.reproductions.target_catalogue import Target
from unskew.reproductions.target_plan import ReproduceOptions, TargetPlan
from unskew.reproductions.target_status import status_of
from unskew.reproductions.write_target import caption, missing_to_text, remarks, to_rows, to_text
from unskew.results.atomic_write import write_output

if TYPE_CHECKING:
    import pandas as pd

    from unskew.reproductions.figures.paper_figure import PaperFigure

RUNS = Path("runs/reproduce")
RECORDED = Path("runs/recorded")  # a table made from recorded rows never replaces one made from runs
Names = str | Sequence[str] | None  # "a,b" or ["a", "b"]
Numbers = str | Sequence[int] | None  # "0-2,7" or [0, 1, 2, 7]


@dataclass(frozen=True)
class Reproduction:
    """A reproduced table or figure: our numbers next to the paper's, and the files in its folder."""

    target: str
    folder: Path
    frame: pd.DataFrame  # one row per cell of a table, or what a figure draws
    files: tuple[Path, ...]
    missing: tuple[MissingCells, ...]
    comparison: PaperComparison | None = None  # of a table
    failed_runs: int = 0
    rerun: str = ""  # the command that runs what is not recorded
    near_matches: tuple[str, ...] = ()  # recorded rows with slightly other settings, and the options for them
    record_files: tuple[Path, ...] = ()  # that `record` wrote
    finished_runs: int = 0

    @property
    def hint(self) -> list[str]:
        """The command for what is missing, if only recorded rows were read."""
        if not (self.missing and self.rerun):
            return []
        return [*self.near_matches, f"to run what is missing: {self.rerun}"]

    def as_dict(self) -> dict[str, Any]:
        """The dictionary that `--json` prints."""
        rerun: dict[str, Any] = {"rerun": self.rerun, "near_matches": self.near_matches}
        rerun["play"] = self.rerun  # the old key, for one version
        if self.comparison is None:
            files = [str(path) for path in self.files]
            missing = [str(cells) for cells in self.missing]
            return {"name": self.target, "files": files, "missing": missing, "out": str(self.folder)} | rerun
        return _table_as_dict(self.comparison) | {"out": str(self.folder)} | rerun

    def __repr__(self) -> str:
        lines = [f"missing: {text}" for text in self.missing] if self.comparison is None else []
        if self.comparison is not None:
            table = self.comparison
            lines = [to_text(table), caption(table), *remarks(table), missing_to_text(table)]
        return "\n".join([*lines, *self.hint, *map(str, self.files)])

    def _repr_html_(self) -> str:
        if self.comparison is None:
            svg = next((path for path in self.files if path.suffix == ".svg"), None)
            return (svg.read_text() if svg else "") + "".join(
                f"<p>missing: {escape(text)}</p>" for text in self.missing
            )
        rows = self.frame[["column", "method", "n", "mean", "std", "final", "mean_last10", "paper", "difference"]]
        missing = [f"not shown: {cells}" for cells in self.missing]
        lines = (caption(self.comparison), *remarks(self.comparison), *missing, *self.hint)
        notes = "".join(f"<p>{escape(line)}</p>" for line in lines)
        return html_table(rows.columns, (map(_as_cell, row) for row in rows.itertuples(index=False))) + notes


def reproduce(
    target: str | None = None,
    *,
    only: Names = None,
    methods: Names = None,
    seeds: Numbers = None,
    draws: Numbers = None,
    rounds: int | None = None,
    preset: str = "paper",
    overrides: Sequence[str] = (),
    device: str | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    record: str | Path | None = None,
    recorded: str | Path | None = None,
    data_dir: str | Path | None = None,
    show: bool | None = None,
) -> Reproduction | pd.DataFrame:
    """Run a table or figure of a paper, or read its recorded rows; without a target, list all of them.

    target: such as "fedlmd/table3-lda"; only: columns of the table by label; methods, seeds, rounds: instead of the
    paper's; draws: seeds of the split, to run all cells on each split; preset: "paper" for its text, "released" for
    the authors' code, or another preset of the recipe; overrides: such as ["precision=tf32"]; jobs: parallel runs;
    out, runs: folders of the results and of the runs; record: add finished runs to this folder's CSV files;
    recorded: run nothing, show rows of this folder, or of "shipped" for those that come with unskew; show: whether
    to show the progress; None shows it in notebooks and terminals.
    """
    root = Path(data_dir) if data_dir else None
    if target is None:
        return _list_targets(root)
    options = ReproduceOptions(
        overrides=tuple(overrides), only=_names(only, "only"), methods=_names(methods, "methods"),
        seeds=_seeds(seeds), draws=_numbers(draws, "draws"), rounds=rounds, preset=preset, device=device,
    )  # fmt: skip
    chosen = target_catalogue.find(target)
    default = (RUNS if recorded is None else RECORDED) / chosen.slug
    results = default if out is None else folder_path(out)
    check_grid_folder(results)
    preflight.check_folder(results, "--out")
    if record is not None:
        preflight.check_record(Path(record), chosen.paper)
    if recorded is not None:
        return _from_records(chosen, options, recorded, results, record)
    run_folder = folder_path(runs) if runs is not None else results if out is not None else RUNS
    plan = plans.make(chosen, options, root)
    if chosen.is_figure:
        _figure(chosen.name)
    done = run_target.run_cells(plan, run_folder, grid_progress(show), jobs=jobs, data_dir=root)
    if chosen.is_figure:
        made = _write_figure(_add_failures(plan, done), run_target.figure_data(plan, done), results)
    else:
        made = _write_table(plan, done, results, report=True)
    files = _record(plan, done, results, Path(record)) if record is not None else []
    return replace(made, failed_runs=len(done.failed), record_files=tuple(files), finished_runs=len(done.finished))


def _from_records(
    target: Target, options: ReproduceOptions, recorded: str | Path, out: Path, record: str | Path | None
) -> Reproduction:
    """Show a table or figure from recorded rows; `record` copies a figure's files next to those rows."""
    folder = results_folder(recorded)
    rerun = command_for(target.name, options, Path("results") if folder != Path(recorded) else folder)
    if not target.is_figure:
        if record is not None:
            raise UserError("--record: the rows of a table are recorded already; leave out --record or --recorded")
        plan, done = read_recorded.read(target, options, folder, rerun)
        return replace(_write_table(plan, done, out, report=False), rerun=rerun, near_matches=plan.near_matches)
    if _figure(target.name).more_than_curves:
        options = replace(options, recorded=figure_table.recorded_datasets(target, folder))
        plan, data = figure_table.read(plans.make(target, options), folder, rerun)
    else:
        plan, done = read_recorded.read(target, options, folder, rerun)
        data = run_target.figure_data(plan, done)
    made = replace(_write_figure(plan, data, out), rerun=rerun, near_matches=plan.near_matches)
    return made if record is None else replace(made, record_files=tuple(_copy_figure(target, out, Path(record))))


def _figure(name: str) -> PaperFigure:
    from unskew.reproductions.figures import FIGURES

    if name not in FIGURES:
        raise UserError(f"{name}: this figure is not implemented yet; `unskew reproduce` lists what can be run")
    return FIGURES[name]


def _write_table(plan: TargetPlan, done: TargetRuns, out: Path, report: bool) -> Reproduction:
    import pandas as pd

    table, comparison = run_target.write_table(plan, done, out)
    files = [out / name for name in run_target.TABLES]
    if report:
        files.append(run_target.write_report(plan, table, comparison, out))
    frame = pd.DataFrame(to_rows(comparison))
    return Reproduction(plan.target.name, out, frame, tuple(files), tuple(comparison.missing), comparison)


def _write_figure(plan: TargetPlan, data: pd.DataFrame, out: Path) -> Reproduction:
    files = run_target.write_figure(plan, data, out)
    return Reproduction(plan.target.name, out, data, tuple(files), tuple(plan.missing))


def _add_failures(plan: TargetPlan, done: TargetRuns) -> TargetPlan:
    """The plan with failed cells added to its list of what is missing."""
    failed = [MissingCells(f"seed {cell.seed} failed: {why}", (plan.column_of(cell),), (cell.label,))
              for cell in plan.grid.cells if (why := done.failed.get(cell.name))]  # fmt: skip
    return replace(plan, missing=(*plan.missing, *failed))


def _record(plan: TargetPlan, done: TargetRuns, out: Path, folder: Path) -> list[Path]:
    """Record the finished runs; failed runs are not recorded."""
    files = run_records.record(plan, done.finished, folder) if done.finished else []
    files += audit_records.record(done.finished, folder / plan.target.paper / "leak.csv")
    return files + (_copy_figure(plan.target, out, folder) if plan.target.is_figure else [])


def _copy_figure(target: Target, out: Path, folder: Path) -> list[Path]:
    """Copy a figure's table and drawing next to the recorded rows."""
    files = [folder / target.paper / f"{target.key}.{kind}" for kind in ("csv", "svg")]
    for path in files:
        write_output(path, (out / path.name).read_bytes())
    return files


def _as_cell(value: Any) -> Any:
    """The text of a cell: numbers with two decimals, nothing for what is unknown."""
    return value if not isinstance(value, float) else "" if value != value else f"{value:.2f}"


def _table_as_dict(comparison: PaperComparison) -> dict[str, object]:
    orders = {column: rank_correlation(comparison.of(column)) for column in comparison.columns}
    known = {column: None if order.rho != order.rho else order.rho for column, order in orders.items()}
    ranked_on = {column: order.shared for column, order in orders.items()}
    return {"name": comparison.name, "preset": comparison.preset,
            "preset_changes": comparison.preset_changes, "changed": comparison.changed,
            "replaced": comparison.substitutions, "cells": to_rows(comparison),
            "rank_correlation": known, "ranked_on": ranked_on,
            "missing": [str(cells) for cells in comparison.missing]}  # fmt: skip


def _list_targets(data_dir: Path | None) -> pd.DataFrame:
    """All tables and figures, and which can be run."""
    import pandas as pd

    statuses = [(target, status_of(target, data_dir)) for target in target_catalogue.targets().values()]
    return pd.DataFrame(
        [
            {"name": target.name, "state": status.word, "shows": target.title, "missing": "; ".join(status.why)}
            for target, status in statuses
        ]
    )


def _names(given: Names, option: str) -> tuple[str, ...] | None:
    words = given.split(",") if isinstance(given, str) else given
    if words is None:
        return None
    valid = isinstance(words, Iterable) and all(isinstance(word, str) for word in words)
    if valid and (names := tuple(word.strip() for word in words if word.strip())):
        return names
    raise UserError(f"--{option}: expected names separated by commas, found {given!r}")


def _numbers(given: Numbers, option: str) -> tuple[int, ...] | None:
    if given is None:
        return None
    try:
        several = parse_seeds(given) if isinstance(given, str) else [given] if isinstance(given, Integral) else given
        numbers = tuple(index(number) for number in several)
    except (ValueError, TypeError) as error:
        raise UserError(f"--{option}: {error}, found {given!r}") from error
    if len(set(numbers)) < len(numbers):
        raise UserError(f"--{option}: expected each number once, found {given!r}")
    return numbers


def _seeds(given: Numbers) -> str | None:
    numbers = _numbers(given, "seeds")
    return None if numbers is None else _as_text(given, numbers)


def _as_text(given: Numbers, numbers: Iterable[int]) -> str:
    return given if isinstance(given, str) else ",".join(map(str, numbers))
