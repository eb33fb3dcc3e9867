"""`unskew reproduce`: the papers' tables and figures, played again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import StoppedByUser, UserError
from unskew.commands.compare_command import FAILED, WIDTH, Jobs

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from unskew.reproduce.compare_to_paper import PaperComparison
    from unskew.reproduce.figures.paper_figure import PaperFigure
    from unskew.reproduce.run_target import TargetRuns
    from unskew.reproduce.target_catalogue import Target
    from unskew.reproduce.target_plan import ReproduceOptions, TargetPlan

RUNS = Path("runs") / "reproduce"
SHOWN = Path("runs") / "recorded"


def reproduce(
    target: Annotated[str | None, typer.Argument(help="such as fedlmd/table3-lda; without it all are listed")] = None,
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value for every run")] = None,
    only: Annotated[str | None, typer.Option(help="columns by their labels: cifar10-0.05,mnist-0.1")] = None,
    methods: Annotated[str | None, typer.Option(help="fedavg,fedlmd,...: of the table, or any others")] = None,
    seeds: Annotated[str | None, typer.Option(help="0,1,2 or 0-4")] = None,
    draws: Annotated[str | None, typer.Option(help="seeds of the split, for a table: every cell on each")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="fewer rounds than the paper")] = None,
    preset: Annotated[str, typer.Option(help="paper: as its text says; released: as its code does")] = "paper",
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N")] = None,
    jobs: Jobs = None,
    out: Annotated[Path | None, typer.Option(help=f"folder of the answers; {RUNS}/<target> without it")] = None,
    runs: Annotated[
        Path | None, typer.Option(help=f"folder of the runs, shared by targets; --out or {RUNS} without it")
    ] = None,
    record: Annotated[
        str | None, typer.Option(help="add the runs to DIR/<paper>/, such as results; nothing is recorded without it")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option(help="play nothing, show what DIR/<paper>/ has recorded, such as results")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON line instead of tables")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where datasets lie; UNSKEW_DATA without it")] = None,
) -> None:
    """Play a paper's table or figure again, beside its numbers.

    Our best accuracies over the rounds, the paper's, the differences, and how far the order of the methods agrees.
    The same command goes on where it stopped, and records with --record what is finished.
    """
    if target is None:
        given = (only, methods, seeds, draws, rounds, device, jobs, out, runs, record, recorded)
        if any(each is not None for each in given) or preset != "paper":
            raise UserError("expected a table or figure such as fedlmd/table1 with these options; the list takes none")
        return _list(data_dir, as_json)
    from unskew.reproduce import target_catalogue
    from unskew.reproduce import target_plan as plans

    _numbers(seeds, "--seeds")
    asked = plans.ReproduceOptions(
        overrides=tuple(overrides or ()), only=_words(only, "--only"), methods=_words(methods, "--methods"),
        seeds=seeds, draws=_numbers(draws, "--draws"), rounds=rounds, preset=preset, device=device,
    )  # fmt: skip
    if recorded is not None:
        return _show(target_catalogue.find(target), asked, recorded, out, record, as_json)
    found = target_catalogue.find(target)
    plan = plans.make(found, asked, data_dir)
    place = out or RUNS / found.slug
    runs = runs or out or RUNS
    _check_folders(found, place, record)
    done = _play(plan, runs, place, jobs, data_dir)
    if plan.target.is_figure:
        from unskew.reproduce import run_target as games

        _tell_figure(_with_failed(plan, done), games.data(plan, done), place, as_json)
    else:
        _tell_table(plan, done, place, as_json)
    if record is not None:
        _record(plan, done, place, Path(record))
    if done.failed:
        raise typer.Exit(FAILED)


def _check_folders(target: Target, out: Path, record: str | None) -> None:
    from unskew.reproduce import preflight

    preflight.check_folder(out, "--out")
    if record is not None:
        preflight.check_record(Path(record), target.paper)


def _show(
    target: Target, asked: ReproduceOptions, folder: Path, out: Path | None, record: str | None, as_json: bool
) -> None:
    """What is recorded; a figure's files may be kept beside the rows that it was drawn from."""
    from dataclasses import replace

    from unskew.reproduce import figure_table, read_recorded
    from unskew.reproduce import run_target as games
    from unskew.reproduce import target_plan as plans
    from unskew.reproduce.command_line import command

    place, how = out or SHOWN / target.slug, command(target.name, asked, folder)
    _check_folders(target, place, record)
    if not target.is_figure:
        if record is not None:
            raise UserError("--record: the rows of a table are recorded already; leave out --record or --recorded")
        plan, done = read_recorded.read(target, asked, folder)
        return _tell_table(plan, done, place, as_json, how)
    if _figure(target.name).more_than_curves:
        asked = replace(asked, recorded=figure_table.datasets(target, folder))
        plan, data = figure_table.read(plans.make(target, asked), folder, how)
    else:
        plan, done = read_recorded.read(target, asked, folder)
        data = games.data(plan, done)
    _tell_figure(plan, data, place, as_json, how)
    if record is not None:
        files = _keep_figure(target, place, Path(record))
        typer.echo(f"kept {', '.join(map(str, files))}", err=True)


def _figure(name: str) -> PaperFigure:
    from unskew.reproduce.figures import FIGURES

    if name not in FIGURES:
        raise UserError(f"{name}: nothing draws this figure yet; `unskew reproduce` lists what can be run")
    return FIGURES[name]


def _play(plan: TargetPlan, runs: Path, out: Path, jobs: int | None, data_dir: Path | None) -> TargetRuns:
    from unskew.compare.progress import TerminalProgress
    from unskew.reproduce import run_target as games

    if plan.target.is_figure:
        _figure(plan.target.name)
    try:
        return games.play(plan, runs, out, TerminalProgress(), jobs=jobs, data_dir=data_dir)
    except KeyboardInterrupt as stop:
        raise StoppedByUser("stopped; the same command goes on after the last complete round of every run") from stop


def _tell_table(plan: TargetPlan, done: TargetRuns, out: Path, as_json: bool, how: str = "") -> None:
    """how: what to type for what is not recorded; a table that was played has a page instead."""
    from unskew.reproduce import run_target as games

    ours, found = games.table(plan, done, out)
    if not how:
        games.report(plan, ours, found, out)
    if as_json:
        typer.echo(json.dumps(_as_dict(found) | {"out": str(out), "play": how}))
        return
    from unskew.reproduce.write_target import caption, remarks, to_screen

    console = _console()
    console.print(to_screen(found))
    console.print(caption(found), markup=False)
    typer.echo("\n".join([*remarks(found), *_to_play(found.missing, how), f"table in {out}/table.csv and .md"]))
    if not how:
        typer.echo(f"report in {out / games.PAGE}")


def _to_play(missing: Sequence[str], how: str) -> list[str]:
    return [f"to play what is missing: {how}"] if missing and how else []


def _with_failed(plan: TargetPlan, done: TargetRuns) -> TargetPlan:
    """The plan that names what failed among what is missing."""
    from dataclasses import replace

    failed = [f"{cell.label}, {plan.column_of(cell)}, seed {cell.seed}: failed: {why}"
              for cell in plan.grid.cells if (why := done.failed.get(cell.name))]  # fmt: skip
    return replace(plan, missing=(*plan.missing, *failed))


def _tell_figure(plan: TargetPlan, data: pd.DataFrame, out: Path, as_json: bool, how: str = "") -> None:
    from unskew.reproduce import run_target as games

    files = [str(path) for path in games.figure(plan, data, out)]
    if as_json:
        said = {"name": plan.target.name, "files": files, "missing": plan.missing, "out": str(out), "play": how}
        typer.echo(json.dumps(said))
    else:
        typer.echo("\n".join([*(f"missing: {what}" for what in plan.missing), *_to_play(plan.missing, how), *files]))


def _as_dict(found: PaperComparison) -> dict[str, object]:
    from unskew.reproduce.compare_to_paper import ranks
    from unskew.reproduce.write_target import to_rows

    orders = {column: ranks(found.of(column)) for column in found.columns}
    known = {column: None if order.rho != order.rho else order.rho for column, order in orders.items()}
    ranked_on = {column: order.shared for column, order in orders.items()}
    return {"name": found.name, "preset": found.preset, "changed": found.changed,
            "replaced": found.replaced, "cells": to_rows(found),
            "rank_correlation": known, "ranked_on": ranked_on, "missing": found.missing}  # fmt: skip


def _record(plan: TargetPlan, done: TargetRuns, out: Path, folder: Path) -> None:
    """Runs that failed are not finished and stay out."""
    from unskew.reproduce import record_paper_leaks
    from unskew.reproduce import record_runs as records

    files = records.record(plan, done.played, folder) if done.played else []
    files += record_paper_leaks.record(done.played, folder / plan.target.paper / "leak.csv")
    if plan.target.is_figure:
        files += _keep_figure(plan.target, out, folder)
    typer.echo(f"recorded {len(done.played)} runs in {', '.join(map(str, files))}", err=True)


def _keep_figure(target: Target, out: Path, folder: Path) -> list[Path]:
    """The table and the drawing of a figure, copied to the recorded rows."""
    from unskew.results.atomic_write import write_whole

    files = [folder / target.paper / f"{target.key}.{kind}" for kind in ("csv", "svg")]
    for path in files:
        write_whole(path, (out / path.name).read_bytes())
    return files


def _list(data_dir: Path | None, as_json: bool) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from unskew.reproduce.target_catalogue import papers, targets
    from unskew.reproduce.target_status import state

    found = {name: state(target, data_dir) for name, target in targets().items()}
    if as_json:
        typer.echo(json.dumps({name: {"state": each.word, "why": each.why} for name, each in found.items()}))
        return
    console = _console()
    for paper, title in papers().items():
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=escape(title), title_justify="left")
        for head in ("name", "state", "shows", "what is missing"):
            table.add_column(head, no_wrap=head in ("name", "state"), overflow="fold")
        for name, target in targets().items():
            if target.paper == paper:
                table.add_row(name, found[name].word, escape(target.title), escape("\n".join(found[name].why)))
        console.print(table)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDTH)


def _words(text: str | None, option: str) -> tuple[str, ...] | None:
    if text is None:
        return None
    if words := tuple(word.strip() for word in text.split(",") if word.strip()):
        return words
    raise UserError(f"{option}: expected names with commas between them, found {text!r}")


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    from unskew.compare.grid import parse_seeds

    if text is None:
        return None
    try:
        numbers = tuple(parse_seeds(text))
    except ValueError as error:
        raise UserError(f"{option}: {error}, found {text!r}") from error
    if len(set(numbers)) < len(numbers):
        raise UserError(f"{option}: expected every number once, found {text!r}")
    return numbers
