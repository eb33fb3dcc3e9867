"""`unskew reproduce`: rerun the papers' tables and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import StoppedByUser, UserError
from unskew.base.paths import folder_path
from unskew.commands.shared_options import RUN_FAILED, STOPPED, DataDir, Imports, Jobs, Json, Overrides, Seeds

if TYPE_CHECKING:
    import pandas as pd

    from unskew.reproductions.compare_to_paper import PaperComparison
    from unskew.reproductions.figures.paper_figure import PaperFigure
    from unskew.reproductions.run_target import TargetRuns
    from unskew.reproductions.target_catalogue import Target
    from unskew.reproductions.target_plan import ReproduceOptions, TargetPlan

RUNS = Path("runs") / "reproduce"
RECORDED = Path("runs") / "recorded"  # output of --recorded


def reproduce(
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="table or figure, such as fedlmd/table3-lda")
    ] = None,
    overrides: Overrides = None,
    only: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="columns by label, such as cifar10-0.05,mnist-0.1")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="such as fedavg,fedlmd; also methods that the table lacks")
    ] = None,
    seeds: Seeds = None,
    draws: Annotated[
        str | None, typer.Option(metavar="SEEDS", help="seeds of the split; runs all cells on each split (tables only)")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, metavar="N", help="run fewer rounds than the paper")] = None,
    preset: Annotated[
        str,
        typer.Option(metavar="NAME", show_default=False, help="paper: its text (default); released: authors' code"),
    ] = "paper",
    device: Annotated[str | None, typer.Option(metavar="DEVICE", help="cpu, cuda or cuda:N")] = None,
    jobs: Jobs = None,
    out: Annotated[
        Path | None,
        typer.Option(parser=folder_path, metavar="DIR", help=f"folder for the results (default: {RUNS}/PAPER-TABLE)"),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(parser=folder_path, metavar="DIR", help=f"folder for the runs (default: --out, else {RUNS})"),
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="DIR", help="add finished runs to DIR/PAPER/accuracy.csv")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(metavar="DIR", help="run nothing; show what is recorded in DIR/PAPER/")
    ] = None,
    as_json: Json = False,
    imports: Imports = None,
    data_dir: DataDir = None,
) -> None:
    """Rerun a paper's table or figure and compare the numbers.

    Prints our best accuracy over the rounds, the paper's, the difference, and the rank correlation of the methods.
    Running the same command again continues where it stopped. Without TARGET, lists all tables and figures.
    """
    if target is None:
        options_given = (only, methods, seeds, draws, rounds, device, jobs, out, runs, record, recorded)
        if any(value is not None for value in options_given) or preset != "paper":
            raise UserError(
                "expected a table or figure such as fedlmd/table1 before these options, found none; "
                "`unskew reproduce` alone lists all of them"
            )
        return _list(data_dir, as_json)
    from unskew.reproductions import target_catalogue
    from unskew.reproductions import target_plan as plans

    _parse_numbers(seeds, "--seeds")
    options = plans.ReproduceOptions(
        overrides=tuple(overrides or ()), only=_parse_names(only, "--only"), methods=_parse_names(methods, "--methods"),
        seeds=seeds, draws=_parse_numbers(draws, "--draws"), rounds=rounds, preset=preset, device=device,
    )  # fmt: skip
    if recorded is not None:
        return _show_recorded(target_catalogue.find(target), options, recorded, out, record, as_json)
    chosen = target_catalogue.find(target)
    results_dir = out or RUNS / chosen.slug
    runs = runs or out or RUNS
    _check_folders(chosen, results_dir, record)
    plan = plans.make(chosen, options, data_dir)
    done = _run(plan, runs, jobs, data_dir)
    if plan.target.is_figure:
        from unskew.reproductions import run_target

        _print_figure(_add_failures(plan, done), run_target.figure_data(plan, done), results_dir, as_json)
    else:
        _print_table(plan, done, results_dir, as_json)
    if record is not None:
        _record(plan, done, results_dir, Path(record))
    if done.failed:
        raise typer.Exit(RUN_FAILED)


def _check_folders(target: Target, out: Path, record: str | None) -> None:
    from unskew.comparisons.folder_lock import check_grid_folder
    from unskew.reproductions import preflight

    check_grid_folder(out)
    preflight.check_folder(out, "--out")
    if record is not None:
        preflight.check_record(Path(record), target.paper)


def _show_recorded(
    target: Target, options: ReproduceOptions, folder: Path, out: Path | None, record: str | None, as_json: bool
) -> None:
    """Show a table or figure from recorded rows; --record copies a figure's files next to those rows."""
    from dataclasses import replace

    from unskew.reproductions import figure_table, read_recorded, run_target
    from unskew.reproductions import target_plan as plans
    from unskew.reproductions.command_line import command_for

    results_dir, rerun = out or RECORDED / target.slug, command_for(target.name, options, folder)
    _check_folders(target, results_dir, record)
    if not target.is_figure:
        if record is not None:
            raise UserError("--record: the rows of a table are recorded already; leave out --record or --recorded")
        plan, done = read_recorded.read(target, options, folder)
        return _print_table(plan, done, results_dir, as_json, rerun)
    if _figure(target.name).more_than_curves:
        options = replace(options, recorded=figure_table.recorded_datasets(target, folder))
        plan, data = figure_table.read(plans.make(target, options), folder, rerun)
    else:
        plan, done = read_recorded.read(target, options, folder)
        data = run_target.figure_data(plan, done)
    _print_figure(plan, data, results_dir, as_json, rerun)
    if record is not None:
        files = _copy_figure(target, results_dir, Path(record))
        typer.echo(f"recorded {', '.join(map(str, files))}", err=True)


def _figure(name: str) -> PaperFigure:
    from unskew.reproductions.figures import FIGURES

    if name not in FIGURES:
        raise UserError(f"{name}: this figure is not implemented yet; `unskew reproduce` lists what can be run")
    return FIGURES[name]


def _run(plan: TargetPlan, runs: Path, jobs: int | None, data_dir: Path | None) -> TargetRuns:
    from unskew.comparisons.progress import TerminalProgress
    from unskew.reproductions import run_target

    if plan.target.is_figure:
        _figure(plan.target.name)
    try:
        return run_target.run_cells(plan, runs, TerminalProgress(), jobs=jobs, data_dir=data_dir)
    except KeyboardInterrupt as stop:
        raise StoppedByUser(STOPPED) from stop


def _print_table(plan: TargetPlan, done: TargetRuns, out: Path, as_json: bool, rerun: str = "") -> None:
    """rerun: the command that runs what is not recorded; empty after a run, which also writes a report."""
    from unskew.reproductions import run_target

    table, comparison = run_target.write_table(plan, done, out)
    if not rerun:
        run_target.write_report(plan, table, comparison, out)
    if as_json:
        typer.echo(json.dumps(_as_dict(comparison) | {"out": str(out)} | _rerun_keys(rerun)))
        return
    from unskew.describe.terminal_tables import console
    from unskew.reproductions.write_target import caption, remarks, to_terminal

    screen = console()
    screen.print(to_terminal(comparison))
    screen.print(caption(comparison), markup=False)
    typer.echo(
        "\n".join([*remarks(comparison), *_rerun_hint(comparison.missing, rerun), f"table: {out}/table.csv and .md"])
    )
    if not rerun:
        typer.echo(f"report: {out / run_target.PAGE}")


def _rerun_keys(rerun: str) -> dict[str, str]:
    return {"rerun": rerun, "play": rerun}  # `play` is the old key, for one version


def _rerun_hint(missing: Sequence[str], rerun: str) -> list[str]:
    return [f"to run what is missing: {rerun}"] if missing and rerun else []


def _add_failures(plan: TargetPlan, done: TargetRuns) -> TargetPlan:
    """The plan with failed cells added to its list of what is missing."""
    from dataclasses import replace

    failed = [f"{cell.label}, {plan.column_of(cell)}, seed {cell.seed}: failed: {why}"
              for cell in plan.grid.cells if (why := done.failed.get(cell.name))]  # fmt: skip
    return replace(plan, missing=(*plan.missing, *failed))


def _print_figure(plan: TargetPlan, data: pd.DataFrame, out: Path, as_json: bool, rerun: str = "") -> None:
    from unskew.reproductions import run_target

    files = [str(path) for path in run_target.write_figure(plan, data, out)]
    if as_json:
        answer = {"name": plan.target.name, "files": files, "missing": plan.missing, "out": str(out)}
        typer.echo(json.dumps(answer | _rerun_keys(rerun)))
    else:
        typer.echo(
            "\n".join([*(f"missing: {text}" for text in plan.missing), *_rerun_hint(plan.missing, rerun), *files])
        )


def _as_dict(comparison: PaperComparison) -> dict[str, object]:
    from unskew.reproductions.compare_to_paper import rank_correlation
    from unskew.reproductions.write_target import to_rows

    orders = {column: rank_correlation(comparison.of(column)) for column in comparison.columns}
    known = {column: None if order.rho != order.rho else order.rho for column, order in orders.items()}
    ranked_on = {column: order.shared for column, order in orders.items()}
    return {"name": comparison.name, "preset": comparison.preset, "changed": comparison.changed,
            "replaced": comparison.substitutions, "cells": to_rows(comparison),
            "rank_correlation": known, "ranked_on": ranked_on, "missing": comparison.missing}  # fmt: skip


def _record(plan: TargetPlan, done: TargetRuns, out: Path, folder: Path) -> None:
    """Record the finished runs; failed runs are not recorded."""
    from unskew.reproductions import record_audits
    from unskew.reproductions import record_runs as records

    files = records.record(plan, done.finished, folder) if done.finished else []
    files += record_audits.record(done.finished, folder / plan.target.paper / "leak.csv")
    if plan.target.is_figure:
        files += _copy_figure(plan.target, out, folder)
    typer.echo(f"recorded {len(done.finished)} runs in {', '.join(map(str, files))}", err=True)


def _copy_figure(target: Target, out: Path, folder: Path) -> list[Path]:
    """Copy a figure's table and drawing next to the recorded rows."""
    from unskew.results.atomic_write import write_output

    files = [folder / target.paper / f"{target.key}.{kind}" for kind in ("csv", "svg")]
    for path in files:
        write_output(path, (out / path.name).read_bytes())
    return files


def _list(data_dir: Path | None, as_json: bool) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from unskew.describe.terminal_tables import console
    from unskew.reproductions.target_catalogue import papers, targets
    from unskew.reproductions.target_status import status_of

    statuses = {name: status_of(target, data_dir) for name, target in targets().items()}
    if as_json:
        typer.echo(json.dumps({name: {"state": each.word, "why": each.why} for name, each in statuses.items()}))
        return
    screen = console()
    for paper, title in papers().items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=escape(title), title_justify="left")
        for head in ("name", "state", "shows", "missing"):
            table.add_column(head, no_wrap=head in ("name", "state"), overflow="fold")
        for name, target in targets().items():
            if target.paper == paper:
                status = statuses[name]
                table.add_row(name, status.word, escape(target.title), escape("\n".join(status.why)))
        screen.print(table)


def _parse_names(text: str | None, option: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    if words := tuple(word.strip() for word in text.split(",") if word.strip()):
        return words
    raise UserError(f"{option}: expected names separated by commas, found {text!r}")


def _parse_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    from unskew.comparisons.grid import parse_seeds

    if text is None:
        return None
    try:
        numbers = tuple(parse_seeds(text))
    except ValueError as error:
        raise UserError(f"{option}: {error}, found {text!r}") from error
    if len(set(numbers)) < len(numbers):
        raise UserError(f"{option}: expected each number once, found {text!r}")
    return numbers
