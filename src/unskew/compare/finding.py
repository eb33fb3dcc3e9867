"""What a comparison allows one to say, in a sentence per setting."""

from __future__ import annotations

from unskew.compare.table import Row, Table
from unskew.results.finding import finding as told


def finding(table: Table, setting: str) -> str:
    """Who wins, or who leads and who is too close to tell; methods with failed seeds have no say."""
    rows = [row for row in table.of(setting) if not row.failed]
    out = [_left_out(row, len(table.seeds)) for row in table.of(setting) if row.failed]
    return " ".join([_said(table, rows), *out])


def in_words(table: Table) -> str:
    """A line per setting."""
    return "\n".join(f"{setting}: {finding(table, setting)}".removeprefix(": ") for setting in table.settings)


def _said(table: Table, rows: list[Row]) -> str:
    if not rows:
        return "No winner: no method finished with every seed."
    found = told({row.label: row.scores[table.metric] for row in rows}, table.metric)
    return f"{found.headline} {found.detail}"


def _left_out(row: Row, seeds: int) -> str:
    return f"{row.label} is left out: {len(row.failed)} of {seeds} seeds failed."
