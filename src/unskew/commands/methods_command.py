"""`unskew methods [NAME]`: the methods that are there, and a page for each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import UserError


def methods(
    name: Annotated[
        str | None, typer.Argument(help="a method or a sum such as fedprox+avgm; without it a table of all")
    ] = None,
    model: Annotated[str | None, typer.Option(help="measure the cost on this net; cnn without it")] = None,
    shape: Annotated[str | None, typer.Option(help="rows of that net, such as 3,32,32; 1,8,8 without it")] = None,
    classes: Annotated[int, typer.Option(min=2, help="classes of that net")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON line instead")] = False,
    markdown: Annotated[Path | None, typer.Option(help="write a page per method and an index into this folder")] = None,
) -> None:
    """Show the methods: equations, settings, traffic, cost."""
    if markdown is not None:
        _write(markdown)
    elif name is None:
        _table(as_json)
    else:
        _page(name, model, shape, classes, as_json)


def _table(as_json: bool) -> None:
    from unskew.describe import method_facts, method_page
    from unskew.describe.describe_method import describe, shipped
    from unskew.describe.terminal_tables import console, show_table

    have = method_facts.table()
    rows = tuple(method_page.row(describe(name), have.get(name)) for name in shipped())
    if as_json:
        typer.echo(json.dumps([dict(zip(method_page.HEAD, row)) for row in rows]))
        return
    out = console()
    # Two tables, since one of eight columns would not fit a usual terminal.
    for columns in ((0, 1, 2, 3), (0, 4, 5, 6, 7)):
        show_table(out, *_columns(method_page.HEAD, rows, columns), whole=("method", "parts"))
    out.print("bytes and work beside FedAvg's; unskew methods NAME shows equations, settings and how it was measured")


def _columns(
    head: tuple[str, ...], rows: tuple[tuple[str, ...], ...], columns: tuple[int, ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    return tuple(head[i] for i in columns), tuple(tuple(row[i] for i in columns) for row in rows)


def _page(name: str, model: str | None, shape: str | None, classes: int, as_json: bool) -> None:
    from dataclasses import asdict

    from unskew.describe import method_cost, method_facts, method_page
    from unskew.describe.describe_method import describe
    from unskew.describe.describe_model import parse_shape
    from unskew.describe.terminal_tables import console, show_sections

    method = describe(name)
    net = method_cost.Net(
        model or method_cost.DIGITS.model, parse_shape(shape) if shape else method_cost.DIGITS.shape, classes
    )
    measured, found = method_cost.measure(name, net), method_facts.table().get(method.name)
    if as_json:
        status = found.status if found else None
        typer.echo(json.dumps(asdict(method) | {"cost": asdict(measured), "status": status}, default=str))
        return
    out = console()
    out.print(f"[bold]{method.name}[/bold]  parts {' + '.join(method.parts)}")
    show_sections(out, method_page.sections(method, measured, net, found))


def _write(folder: Path) -> None:
    from unskew.describe.method_markdown import pages
    from unskew.results.atomic_write import write_whole

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--markdown: expected a folder that can be written, found: {error}") from error
    for name, text in pages().items():
        write_whole(folder / name, text.encode())
    typer.echo(f"pages of all methods: now in {folder}")
