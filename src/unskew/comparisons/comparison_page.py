"""The report of a comparison: the same labels and scores as its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unskew.comparisons.comparison_table import ComparisonRow, ComparisonTable
from unskew.comparisons.finding_per_setting import finding_of
from unskew.reports.group_runs import MethodRuns, Setting, baseline_first
from unskew.reports.report_page import ExtraSection, write_settings

PaperValues = Mapping[tuple[str, str], str]  # (setting, label) -> the paper's number


def write(
    table: ComparisonTable, path: Path, paper_values: PaperValues | None = None, extra: ExtraSection | None = None
) -> Path:
    """Write one page about the runs of the table, with the grid's labels and the table's scores."""
    rows_of = {name: [row for row in table.of(name) if row.runs] for name in table.settings}
    settings = [_setting(table, name, rows, paper_values or {}) for name, rows in rows_of.items() if rows]
    findings = [(name, finding_of(table, name)) for name in table.settings]
    return write_settings(settings, findings, path, table.name, table.metric, extra)


def _setting(table: ComparisonTable, name: str, rows: list[ComparisonRow], paper_values: PaperValues) -> Setting:
    """The setting with the rows that have runs; a row whose runs all failed only leaves a note."""
    selection = [table.caption] if table.metric == "selected" else []
    notes = [f"{row.label}: {remark}." for row in table.of(name) for remark in row.remarks]
    return Setting(name, baseline_first([_entry(table, row, paper_values) for row in rows]), (*selection, *notes))


def _entry(table: ComparisonTable, row: ComparisonRow, paper_values: PaperValues) -> MethodRuns:
    scores = {measure: row.scores[measure] for measure in table.measures}
    return MethodRuns(row.label, row.runs, scores, not row.failed, paper_values.get((row.setting, row.label), ""))
