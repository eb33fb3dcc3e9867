"""`unskew reproduce`: rerun the papers' tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unskew.base.errors import StoppedByUser, UserError
from unskew.base.paths import folder_path
from unskew.commands.shared_options import RUN_FAILED, STOPPED, DataDir, Imports, Jobs, Json, Overrides, Seeds

if TYPE_CHECKING:
    from unskew.reproductions.compare_to_paper import PaperComparison
    from unskew.reproductions.reproduce_target import Reproduction

RUNS = Path("runs/reproduce")


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
        typer.Option(
            metavar="NAME",
            show_default=False,
            help="paper: its text (default); released: authors' code; or another preset of its recipe",
        ),
    ] = "paper",
    device: Annotated[str | None, typer.Option("--device", metavar="DEVICE", help="cpu, cuda or cuda:N")] = None,
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
        Path | None,
        typer.Option(metavar="DIR", help="run nothing; show rows in DIR/PAPER/; shipped: those that come with unskew"),
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
    from unskew.reproductions.reproduce_target import Reproduction
    from unskew.reproductions.reproduce_target import reproduce as reproduce_target

    try:
        done = reproduce_target(
            target, only=only, methods=methods, seeds=seeds, draws=draws, rounds=rounds, preset=preset,
            overrides=tuple(overrides or ()), device=device, jobs=jobs, out=out, runs=runs, record=record,
            recorded=recorded, data_dir=data_dir, show=True,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        raise StoppedByUser(STOPPED) from stop
    assert isinstance(done, Reproduction)  # a table only without a target
    if as_json:
        typer.echo(json.dumps(done.as_dict()))
    elif done.comparison is None:
        typer.echo("\n".join([*(f"missing: {text}" for text in done.missing), *done.hint, *map(str, done.files)]))
    else:
        _print_table(done, done.comparison)
    if done.record_files:
        count = f"{done.finished_runs} runs in " if done.finished_runs or done.failed_runs else ""
        typer.echo(f"recorded {count}{', '.join(map(str, done.record_files))}", err=True)
    if done.failed_runs:
        raise typer.Exit(RUN_FAILED)


def _print_table(done: Reproduction, comparison: PaperComparison) -> None:
    from unskew.describe.terminal_tables import console
    from unskew.reproductions.write_target import caption, missing_to_terminal, remarks, to_terminal

    screen = console()
    screen.print(to_terminal(comparison))
    screen.print(caption(comparison), markup=False)
    typer.echo("\n".join(remarks(comparison)))
    if comparison.missing:
        screen.print(missing_to_terminal(comparison))
    typer.echo("\n".join([*done.hint, f"table: {done.folder}/table.csv and .md"]))
    if not done.rerun:
        typer.echo(f"report: {done.files[-1]}")


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
