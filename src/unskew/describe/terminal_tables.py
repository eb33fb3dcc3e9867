"""Tables and sections on a terminal, and with a fixed width where there is none."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from unskew.describe.method_page import PageSection, Row

WIDTH = 120  # columns where there is no terminal to fit


def console() -> Console:
    """Standard output."""
    here = Console(highlight=False)
    return here if here.is_terminal else Console(highlight=False, width=WIDTH)


def show_table(out: Console, head: Row, rows: tuple[Row, ...], whole: Row = ()) -> None:
    """A table; columns named in `whole` are never broken."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        table.add_column(title, overflow="fold", no_wrap=title in whole)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)


def show_sections(out: Console, sections: list[PageSection]) -> None:
    """Titles in bold, text wrapped, equations as they are written."""
    for section in sections:
        if section.title:
            out.print(f"\n[bold]{escape(section.title)}[/bold]")
        for line in section.text:
            out.print(line, markup=False)
        for line in section.lines:
            out.print(line, markup=False, soft_wrap=True)
        if section.rows:
            show_table(out, section.head, section.rows, section.head[:1])
