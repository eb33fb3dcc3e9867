"""What a comparison allows one to say, in a sentence per setting."""

from __future__ import annotations

from unskew.compare.comparison_table import ComparisonRow, ComparisonTable
from unskew.results.finding import Finding
from unskew.results.finding import finding as told


def found(table: ComparisonTable, setting: str) -> Finding:
    """Who wins, or who leads and who is too close to tell; methods with failed seeds have no say."""
    rows = [row for row in table.of(setting) if not row.failed]
    out = [_left_out(row, len(table.seeds)) for row in table.of(setting) if row.failed]
    said = _said(table, rows)
    return Finding(said.headline, " ".join(text for text in (said.detail, *out, table.note) if text))


def finding(table: ComparisonTable, setting: str) -> str:
    """The same as one text."""
    said = found(table, setting)
    return f"{said.headline} {said.detail}"


def in_words(table: ComparisonTable) -> str:
    """A line per setting."""
    return "\n".join(f"{setting}: {finding(table, setting)}".removeprefix(": ") for setting in table.settings)


def _said(table: ComparisonTable, rows: list[ComparisonRow]) -> Finding:
    if not rows:
        return Finding("No winner: no method finished with every seed.", "")
    return told({row.label: row.scores[table.metric] for row in rows}, table.metric)


def _left_out(row: ComparisonRow, seeds: int) -> str:
    return f"{row.label} is left out: {len(row.failed)} of {seeds} seeds failed."
