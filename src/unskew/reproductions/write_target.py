"""Write a reproduced table as CSV and Markdown, and lay it out for the terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from unskew.describe.terminal_tables import as_text
from unskew.reproductions.compare_to_paper import (
    MIN_RANKED,
    TOLERANCE,
    PaperCell,
    PaperComparison,
    RankCorrelation,
    rank_correlation,
)
from unskew.results.atomic_write import write_output
from unskew.results.format_numbers import spread

MARK = "*"
NO_WRAP = ("column", "method", "best")
COLUMNS = (
    "column", "method", "dataset", "model", "rounds", "n", "mean", "std", "final", "mean_last10", "paper",
    "paper_std", "difference", "outside",
    "speedup", "reached", "paper_speedup", "lead", "lead_half_width", "lead_pairs", "failed",
)  # fmt: skip


def write(comparison: PaperComparison, out: Path) -> None:
    """Write table.csv and table.md."""
    write_output(out / "table.csv", to_csv(comparison).encode())
    write_output(out / "table.md", to_markdown(comparison).encode())


def to_csv(comparison: PaperComparison) -> str:
    """One line per cell with four decimals; `lead` is the paired difference, the paper's own method minus this one."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in to_rows(comparison):
        writer.writerow([_format_csv(row[name]) for name in COLUMNS])
    return file.getvalue()


def to_text(comparison: PaperComparison) -> str:
    """The table as plain text."""
    return as_text(to_terminal(comparison))


def missing_to_text(comparison: PaperComparison) -> str:
    """The cells that are not shown as plain text; empty if nothing is missing."""
    return as_text(missing_to_terminal(comparison)) if comparison.missing else ""


def to_rows(comparison: PaperComparison) -> list[dict[str, Any]]:
    """One record per cell, as plain numbers; None: unknown."""
    rows = []
    for cell in comparison.cells:
        (mean, std), lead, (factor, reached) = cell.spread, comparison.lead(cell), cell.mean_speedup
        half = (lead.high - lead.mean) if lead else math.nan
        values = {
            "mean": mean, "std": std, "final": cell.final, "mean_last10": cell.late,
            "difference": cell.difference, "speedup": factor,
            "lead": lead.mean if lead else math.nan, "lead_half_width": half,
        }  # fmt: skip
        known = {key: round(value, 4) if math.isfinite(value) else None for key, value in values.items()}
        rows.append(
            {"column": cell.column, "method": cell.method, "n": len(cell.scores), "failed": "; ".join(cell.failed)}
            | _run_facts(cell)
            | known
            | {
                "paper": cell.printed.mean if cell.printed else None,
                "paper_std": cell.printed.std if cell.printed else None,
                "paper_speedup": cell.printed.speedup if cell.printed else None,
                "outside": cell.outside if cell.exact and known["difference"] is not None else None,
                "reached": reached if cell.speedups else None,
                "lead_pairs": lead.pairs if lead else None,
            }
        )
    return rows


def _run_facts(cell: PaperCell) -> dict[str, Any]:
    """What was run, because the column's name may be the paper's."""
    if cell.experiment is None:
        return dict.fromkeys(("dataset", "model", "rounds"))
    run = cell.experiment
    return {"dataset": run.data.name, "model": run.model.name, "rounds": run.rounds}


def to_markdown(comparison: PaperComparison) -> str:
    """The caption, the table, then the remarks."""
    notes = "\n".join(f"- {line}" for line in remarks(comparison))
    text = f"{caption(comparison)}\n\n{_markdown_table(*_table_cells(comparison))}\n\n{notes}\n"
    return f"{text}\nNot shown:\n\n{_markdown_table(*_missing_rows(comparison))}\n" if comparison.missing else text


def _markdown_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)


def to_terminal(comparison: PaperComparison) -> Table:
    return _terminal_table(*_table_cells(comparison))


def missing_to_terminal(comparison: PaperComparison) -> Table:
    """The cells that are not shown, and why."""
    return _terminal_table(*_missing_rows(comparison))


def _missing_rows(comparison: PaperComparison) -> tuple[list[str], list[list[str]]]:
    rows = [[", ".join(cells.columns) or "all", ", ".join(cells.methods) or "all", " ".join(cells.why.split())]
            for cells in comparison.missing]  # fmt: skip
    return ["not shown", "methods", "why"], rows


def _terminal_table(head: list[str], rows: list[list[str]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for title in head:
        table.add_column(title, overflow="fold", no_wrap=title in NO_WRAP)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def caption(comparison: PaperComparison) -> str:
    """What the numbers are, and how they differ from the paper's settings."""
    changes = ", ".join(comparison.preset_changes)
    own = f" ({changes}; chosen because it gives the printed accuracies)" if changes else ""
    text = (
        f"{comparison.name}, preset {comparison.preset}{own}: best accuracy over the rounds in percent, mean ± "
        "standard deviation over n repetitions (seeds and draws of the split), next to the means of the last round and "
        "of the last ten."
    )
    notes = [*_mark_notes(comparison), *_column_notes(comparison), describe_deviations(comparison)]
    return " ".join(each for each in (text, comparison.majority, *notes) if each)


def describe_deviations(comparison: PaperComparison) -> str:
    """What differs from the paper and what that means for its numbers; empty if nothing differs."""
    lines = [f"Differs from the paper: {', '.join(comparison.changed)}."] if comparison.changed else []
    by_reason: dict[str, list[str]] = {}
    for column, words in comparison.substitutions.items():
        by_reason.setdefault(", ".join(words), []).append(column)
    for reason, labels in by_reason.items():
        lines.append(f"The paper has no comparable number for {', '.join(labels)}: {reason}.")
    if any(cell.printed and not cell.exact for cell in comparison.cells):
        lines.append("The paper's numbers are for its own settings, so differences are not marked.")
    return " ".join(lines)


def _column_notes(comparison: PaperComparison) -> list[str]:
    """What the columns after the paper's numbers mean."""
    lines = []
    if comparison.has_speedups:
        lines.append(
            "Speed-up, as the paper defines it: all rounds divided by the first round that reaches FedAvg's best "
            "accuracy; †: some repetition never reaches it and counts as 1, where the paper prints 1.00 or Failed."
        )
    if _has_leads(comparison):
        lines.append(
            f"{comparison.proposed} − method: mean of the n paired differences; with its 95 % interval if n > 1."
        )
    return lines


def _has_leads(comparison: PaperComparison) -> bool:
    return any(comparison.lead(cell) for cell in comparison.cells)


def _mark_notes(comparison: PaperComparison) -> list[str]:
    comparable = any(cell.printed and cell.exact for cell in comparison.cells)
    return [f"{MARK}: differs from the paper by more than {TOLERANCE:g} points."] if comparable else []


def remarks(comparison: PaperComparison) -> list[str]:
    """Lines on rank correlations, then on what failed."""
    lines = []
    for column in comparison.columns:
        cells = comparison.of(column)
        notes = (*_rank_remarks(rank_correlation(cells)), *_unequal_repetitions(cells))
        lines += [f"{column}: {note}" for note in notes]
    lines += [f"{cell.column}, {cell.method}: {why}" for cell in comparison.cells for why in cell.failed]
    lines += [f"{cell.column}, {cell.method}: to be run again: {why}" for cell in comparison.cells
              for why in cell.superseded]  # fmt: skip
    return lines


def _rank_remarks(order: RankCorrelation) -> list[str]:
    """How well our order of the methods agrees with the paper's."""
    name = "rank correlation with the paper"
    if not order.methods:  # the paper has no number for them
        return []
    if not order.shared:
        return [f"no {name}: its {order.methods} methods share no repetition (the same seed on the same split)"]
    if not order.learnt:
        return [f"no {name}: no accuracy is clearly above what always predicting the largest class gives"]
    if order.methods < MIN_RANKED:
        return [f"no {name}: it needs {MIN_RANKED} methods, found {order.methods}"]
    if not math.isfinite(order.rho):
        return [f"no {name}: all means are equal"]
    shared = f", on the {order.shared} of {order.total} repetitions that all of them have"
    return [f"{name} {order.rho:.2f} over {order.methods} methods{shared if order.shared < order.total else ''}"]


def _unequal_repetitions(cells: Sequence[PaperCell]) -> list[str]:
    """A warning if the column's means are over different repetitions."""
    sets = [set(cell.scores) for cell in cells if cell.scores]
    if all(each == sets[0] for each in sets):
        return []
    return ["methods have different repetitions (n); compare them by the paired differences, not the means"]


def _table_cells(comparison: PaperComparison) -> tuple[list[str], list[list[str]]]:
    has_speedups, numbers = comparison.has_speedups, any(cell.printed for cell in comparison.cells)
    head = [
        "column",
        "method",
        "best",
        "final",
        "last ten",
        "n",
        *["paper", "difference"] * numbers,
        *["speed-up", "paper's"] * has_speedups,
    ]
    leads = _has_leads(comparison)
    head += [f"{comparison.proposed} − method"] * leads
    rows = []
    for cell in comparison.cells:
        paper = spread(cell.printed.mean, cell.printed.std or math.nan, 2) if cell.printed else "–"
        row = [
            cell.column,
            cell.method,
            _format_scores(cell),
            _format_mean(cell.final),
            _format_mean(cell.late),
            str(len(cell.scores)),
            *[paper, _format_difference(cell)] * numbers,
        ]
        row += [_format_speedup(cell), (cell.printed.speedup if cell.printed else "") or "–"] * has_speedups
        rows.append([*row, *[_format_lead(comparison, cell)] * leads])
    return head, rows


def _format_scores(cell: PaperCell) -> str:
    return "failed" if cell.failed and not cell.scores else spread(*cell.spread, 2)


def _format_mean(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _format_difference(cell: PaperCell) -> str:
    if math.isnan(cell.difference):
        return "–"
    return f"{cell.difference:+.2f}{f' {MARK}' if cell.outside else ''}"


def _format_speedup(cell: PaperCell) -> str:
    if not cell.speedups:
        return "–"
    factor, reached = cell.mean_speedup
    return f"{factor:.2f}" if reached else f"{factor:.2f} †"


def _format_lead(comparison: PaperComparison, cell: PaperCell) -> str:
    lead = comparison.lead(cell)
    if lead is None:
        return "–"
    interval = f" [{lead.low:+.2f}, {lead.high:+.2f}]" if math.isfinite(lead.low) else ""
    fewer = f", n={lead.pairs}" if lead.pairs < len(cell.scores) else ""
    return f"{lead.mean:+.2f}{interval}{fewer}"


def _format_csv(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
