"""A comparison's table as CSV, Markdown, LaTeX and for the terminal, independent of time, host and folder."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup
from markupsafe import escape as escape_html
from rich import box
from rich.markup import escape
from rich.table import Table as RichTable

from unskew.base.notebook import html_table
from unskew.comparisons.comparison_table import MEASURES, ComparisonRow, ComparisonTable
from unskew.comparisons.finding_per_setting import findings_text
from unskew.describe.terminal_tables import as_text
from unskew.results.atomic_write import write_output

Emphasis = Callable[[str], str]
LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def write(table: ComparisonTable, out: Path) -> None:
    """Write the table in every format, and the finding."""
    texts = {"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)}
    for kind, text in texts.items():
        write_output(out / f"table.{kind}", text.encode())
    write_output(out / "finding.txt", f"{findings_text(table)}\n".encode())


def to_csv(table: ComparisonTable) -> str:
    """One line per row, numbers with four decimals; missing values are empty."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    measures = [f"{measure}_{statistic}" for measure in table.measures for statistic in ("mean", "std")]
    writer.writerow(["setting", "method", "seeds", *measures, "difference", "low", "high", "notes"])
    for row in table.rows:
        gap = table.gap(row)
        numbers = [value for measure in table.measures for value in row.spread(measure)]
        numbers += [gap.mean, gap.low, gap.high] if gap else [math.nan] * 3
        seeds = len(row.scores[table.metric])
        writer.writerow([row.setting, row.label, seeds, *map(_decimals, numbers), "; ".join(row.remarks)])
    return file.getvalue()


def to_markdown(table: ComparisonTable) -> str:
    """A table with the best means in bold, the caption above it and the finding below."""
    head, rows = _titles_and_rows(table, lambda text: f"**{text}**", _markdown)
    lines = [head, ["---"] * len(head), *rows]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_markdown(table.caption)}\n\n{body}\n\n{_markdown(findings_text(table))}\n"


def to_latex(table: ComparisonTable) -> str:
    """A plain tabular that needs no LaTeX package; the caption is a comment."""
    head, rows = _titles_and_rows(table, lambda text: f"\\textbf{{{text}}}", escape_latex)
    lines = [_latex_row(line) for line in rows]
    return "\n".join(
        [
            f"% {table.caption}",
            f"\\begin{{tabular}}{{{'l' * len(head)}}}",
            "\\hline",
            f"{' & '.join(head)} \\\\",
            "\\hline",
            *lines,
            "\\hline",
            "\\end{tabular}",
            "",
        ]
    )


def to_terminal(table: ComparisonTable) -> RichTable:
    """The table for rich's console."""
    head, rows = _titles_and_rows(table, lambda text: f"[bold]{text}[/bold]", escape)
    rich_table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, caption=escape(table.caption), caption_justify="left")
    for title in head:
        rich_table.add_column(title, overflow="fold")
    for row in rows:
        rich_table.add_row(*row)
    return rich_table


def to_text(table: ComparisonTable) -> str:
    """The table as plain text."""
    return as_text(to_terminal(table))


def to_html(table: ComparisonTable, finding: str, report: Path) -> str:
    """The table for notebooks, with the finding and a link to the report."""
    head, rows = _titles_and_rows(table, Markup("<b>{}</b>").format, str)
    lines = "".join(f"<p>{escape_html(line)}</p>" for line in (table.caption, *finding.splitlines()))
    path = escape_html(report)
    return f'{html_table(head, rows)}{lines}<p>report: <a href="{path}">{path}</a></p>'


def escape_latex(text: str) -> str:
    r"""
    >>> escape_latex("s=2_a & 5 %")
    's=2\\_a \\& 5 \\%'
    """
    return "".join(LATEX.get(character, character) for character in text)


def _latex_row(cells: list[str]) -> str:
    """A row. `{}` goes before a bracket or star, which LaTeX would take for an option of the row before."""
    text = " & ".join(cells)
    return f"{'{}' if text.startswith(('[', '*')) else ''}{text} \\\\"


def _markdown(text: str) -> str:
    return re.sub(r"([\\|*_<>`])", r"\\\1", text)


def _titles_and_rows(table: ComparisonTable, bold: Emphasis, clean: Emphasis) -> tuple[list[str], list[list[str]]]:
    """Titles and cells as text, the same in every format except for emphasis and escapes."""
    several, noted = table.settings != [""], any(row.remarks for row in table.rows)
    titles = ["setting"] * several + ["method", *(MEASURES[measure] for measure in table.measures)]
    titles += [f"method − {_baseline(table)}, 95 % CI ({MEASURES[table.metric]})"]
    titles += ["notes"] * noted
    rows = []
    for row in table.rows:
        cells = [clean(row.setting)] * several + [clean(row.label)]
        for measure in table.measures:
            text = clean(_spread(row, measure))
            cells.append(bold(text) if table.leads(row, measure) else text)
        rows.append([*cells, clean(_gap(table, row)), *[clean("; ".join(row.remarks))] * noted])
    return [clean(title) for title in titles], rows


def _baseline(table: ComparisonTable) -> str:
    """Name of the baseline: its label, or the method's own name if candidates differ between settings."""
    rows = [table.baseline(setting) for setting in table.settings]
    for names in ({row.label for row in rows}, {row.method for row in rows}):
        if len(names) == 1:
            return names.pop()
    return "the first method"


def _spread(row: ComparisonRow, measure: str) -> str:
    mean, std = row.spread(measure)
    if math.isnan(mean):
        return "failed" if row.failed else "-"
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ± {std:.2f}"


def _gap(table: ComparisonTable, row: ComparisonRow) -> str:
    gap = table.gap(row)
    if gap is None:
        return "-"
    if gap.pairs < 2:
        return f"{gap.mean:+.2f} (one seed)"
    # Without spread (the same difference with every seed) an interval cannot be estimated.
    return f"{gap.mean:+.2f} " + (f"[{gap.low:+.2f}, {gap.high:+.2f}]" if math.isfinite(gap.low) else "(no interval)")


def _decimals(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else ""
