"""The report on a comparison: its page says what its table says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unskew.compare.comparison_table import ComparisonRow, ComparisonTable
from unskew.compare.finding_per_setting import found
from unskew.report.group_runs import MethodRuns, Setting, reference_first
from unskew.report.report_page import ExtraSection, write_settings

Printed = Mapping[tuple[str, str], str]  # (setting, label) -> a paper's number


def write(
    table: ComparisonTable, path: Path, printed: Printed | None = None, extra: ExtraSection | None = None
) -> Path:
    """One page over the runs of the table, under the grid's labels and by the table's scores."""
    named = {name: [row for row in table.of(name) if row.runs] for name in table.settings}
    settings = [_setting(table, name, rows, printed or {}) for name, rows in named.items() if rows]
    findings = [(name, found(table, name)) for name in table.settings]
    return write_settings(settings, findings, path, table.name, table.metric, extra)


def _setting(table: ComparisonTable, name: str, rows: list[ComparisonRow], printed: Printed) -> Setting:
    """Of the rows that have runs to show; what failed altogether has a note."""
    how = [table.caption] if table.metric == "selected" else []
    notes = [f"{row.label}: {remark}." for row in table.of(name) for remark in row.remarks]
    return Setting(name, reference_first([_entry(table, row, printed) for row in rows]), (*how, *notes))


def _entry(table: ComparisonTable, row: ComparisonRow, printed: Printed) -> MethodRuns:
    scores = {measure: row.scores[measure] for measure in table.measures}
    return MethodRuns(row.label, row.runs, scores, not row.failed, printed.get((row.setting, row.label), ""))
