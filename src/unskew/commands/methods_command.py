"""`unskew methods [NAME]`: list the available methods, or describe one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import UserError
from unskew.commands.shared_options import Imports, Json


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="method or sum of parts, such as fedprox+avgm")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="model to measure the cost on (default: cnn)")
    ] = None,
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="SHAPE", help="input shape, such as 3,32,32 (default: 1,8,8)")
    ] = None,
    classes: Annotated[int, typer.Option(min=2, metavar="N", help="number of classes")] = 10,
    imports: Imports = None,
    as_json: Json = False,
    markdown: Annotated[
        Path | None, typer.Option(metavar="DIR", help="write a page per method and an index to DIR")
    ] = None,
) -> None:
    """List methods, or describe one: equations, settings, cost."""
    if markdown is not None:
        _write_markdown(markdown)
    elif name is None:
        _print_table(as_json)
    else:
        _print_method(name, model, shape, classes, as_json)


def _print_table(as_json: bool) -> None:
    from unskew.describe import method_facts, method_page
    from unskew.describe.describe_method import describe, shipped
    from unskew.describe.terminal_tables import console, show_table

    facts = method_facts.table()
    rows = tuple(method_page.row(describe(name), facts.get(name)) for name in shipped())
    if as_json:
        typer.echo(json.dumps([dict(zip(method_page.HEAD, row)) for row in rows]))
        return
    out = console()
    # Two tables: eight columns would not fit a usual terminal.
    for columns in ((0, 1, 2, 3), (0, 4, 5, 6, 7)):
        show_table(out, *_columns(method_page.HEAD, rows, columns), no_wrap_columns=("method", "parts"))
    out.print(
        "bytes and work are relative to FedAvg; tested: the equations, not the accuracies; best and worst: points "
        "above FedAvg in recorded settings; `unskew methods NAME` shows the measurement, equations and settings"
    )


def _columns(
    head: tuple[str, ...], rows: tuple[tuple[str, ...], ...], columns: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(head[i] for i in columns), tuple(tuple(row[i] for i in columns) for row in rows)


def _print_method(name: str, model: str | None, shape: str | None, classes: int, as_json: bool) -> None:
    from dataclasses import asdict

    from unskew.describe import method_cost, method_facts, method_page
    from unskew.describe.describe_method import describe
    from unskew.describe.describe_model import parse_shape
    from unskew.describe.terminal_tables import console, show_sections

    method = describe(name)
    net = method_cost.Net(
        model or method_cost.DIGITS.model, parse_shape(shape) if shape else method_cost.DIGITS.shape, classes
    )
    measured, facts = method_cost.measure(name, net), method_facts.table().get(method.name)
    if as_json:
        status = facts.status if facts else None
        typer.echo(json.dumps(method.record() | {"cost": asdict(measured), "status": status}, default=str))
        return
    out = console()
    out.print(f"[bold]{method.name}[/bold]  parts {' + '.join(method.parts)}")
    show_sections(out, method_page.sections(method, measured, net, facts))


def _write_markdown(folder: Path) -> None:
    from unskew.describe.method_markdown import pages
    from unskew.describe.method_page import GENERATED
    from unskew.results.atomic_write import write_output

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--markdown: expected a writable folder, found: {error}") from error
    written = pages()
    for path in (folder / name for name in written if (folder / name).exists()):
        if not path.read_bytes().startswith(GENERATED.encode()):
            raise UserError(f"{path}: expected a page that this command wrote, found another; choose another folder")
    for name, text in written.items():
        write_output(folder / name, text.encode())
    typer.echo(f"pages of all methods written to {folder}")
