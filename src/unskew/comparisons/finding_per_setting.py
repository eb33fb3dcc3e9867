"""The finding of a comparison, one per setting."""

from __future__ import annotations

from unskew.comparisons.comparison_table import ComparisonRow, ComparisonTable
from unskew.results.finding import Finding
from unskew.results.finding import finding as compute_finding
from unskew.results.learning import flag_unlearnt


def finding_of(table: ComparisonTable, setting: str) -> Finding:
    """The method that wins, or the leader and those too close to call; methods with failed seeds do not count."""
    rows = [row for row in table.of(setting) if not row.failed]
    left_out = [_left_out(row, len(table.seeds)) for row in table.of(setting) if row.failed]
    finding = flag_unlearnt(_finding_of_rows(table, rows), {row.label: row.runs for row in rows if row.runs})
    return Finding(finding.headline, " ".join(text for text in (finding.detail, *left_out, table.note) if text))


def finding_text(table: ComparisonTable, setting: str) -> str:
    """The finding of a setting as one text."""
    finding = finding_of(table, setting)
    return f"{finding.headline} {finding.detail}"


def findings_text(table: ComparisonTable) -> str:
    """The findings of all settings, a line each."""
    return "\n".join(f"{setting}: {finding_text(table, setting)}".removeprefix(": ") for setting in table.settings)


def _finding_of_rows(table: ComparisonTable, rows: list[ComparisonRow]) -> Finding:
    if not rows:
        return Finding("No winner: no method finished with every seed.", "")
    return compute_finding({row.label: row.scores[table.metric] for row in rows}, table.metric)


def _left_out(row: ComparisonRow, seeds: int) -> str:
    return f"{row.label} is excluded because {len(row.failed)} of {seeds} seeds failed."
