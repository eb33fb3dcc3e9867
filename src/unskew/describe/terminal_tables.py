"""Print tables and sections to a terminal, or with a fixed width to a file or pipe."""

from __future__ import annotations

import io
from typing import cast

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unskew.describe.method_page import PageSection, Row

WIDTH = 120  # if the output is not a terminal
WIDE = 160  # of a table as text


def console() -> Console:
    """A console on standard output."""
    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=WIDTH)


def as_text(table: Table) -> str:
    """A table without colours, also in notebooks, where a console would show it instead of returning it."""
    out = Console(file=io.StringIO(), width=WIDE, force_jupyter=False)
    out.print(table)
    return cast(io.StringIO, out.file).getvalue().rstrip()


def show_table(out: Console, head: Row, rows: tuple[Row, ...], no_wrap_columns: Row = ()) -> None:
    """Print a table; columns named in `no_wrap_columns` are never wrapped."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        table.add_column(title, overflow="fold", no_wrap=title in no_wrap_columns)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


def show_sections(out: Console, sections: list[PageSection]) -> None:
    """Print sections: bold titles, wrapped text, equations as written."""
    for section in sections:
        if section.title:
            out.print(f"\n[bold]{escape(section.title)}[/bold]")
        for line in section.text:
            out.print(line, markup=False)
        for line in section.lines:
            out.print(line, markup=False, soft_wrap=True)
        if section.rows:
            show_table(out, section.head, section.rows, section.head[:1])
