"""A table played again, as CSV, Markdown and for the terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table as Screen

from unskew.reproduce.compare_to_paper import NEAR, PaperCell, PaperComparison, RankCorrelation, ranks
from unskew.results.atomic_write import write_whole
from unskew.results.format_numbers import spread

MARK = "*"
COLUMNS = (
    "column", "method", "dataset", "model", "rounds", "n", "mean", "std", "paper", "paper_std", "difference", "outside",
    "speedup", "reached", "paper_speedup", "lead", "lead_half_width", "lead_pairs", "failed",
)  # fmt: skip


def write(found: PaperComparison, out: Path) -> None:
    """table.csv and table.md."""
    write_whole(out / "table.csv", to_csv(found).encode())
    write_whole(out / "table.md", to_markdown(found).encode())


def to_csv(found: PaperComparison) -> str:
    """One line per cell, four decimals; `lead` is the paired difference of the paper's own method to this one."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in to_rows(found):
        writer.writerow([_plain(row[name]) for name in COLUMNS])
    return file.getvalue()


def to_rows(found: PaperComparison) -> list[dict[str, Any]]:
    """The cells as plain numbers; None is not known."""
    rows = []
    for cell in found.cells:
        (mean, std), lead, (factor, reached) = cell.spread, found.lead(cell), cell.speedup
        half = (lead.high - lead.mean) if lead else math.nan
        values = {
            "mean": mean, "std": std, "difference": cell.difference, "speedup": factor,
            "lead": lead.mean if lead else math.nan, "lead_half_width": half,
        }  # fmt: skip
        known = {key: round(value, 4) if math.isfinite(value) else None for key, value in values.items()}
        rows.append(
            {"column": cell.column, "method": cell.method, "n": len(cell.scores), "failed": "; ".join(cell.failed)}
            | _about(cell)
            | known
            | {
                "paper": cell.printed.mean if cell.printed else None,
                "paper_std": cell.printed.std if cell.printed else None,
                "paper_speedup": cell.printed.speedup if cell.printed else None,
                "outside": cell.outside if cell.exact and known["difference"] is not None else None,
                "reached": reached if cell.factors else None,
                "lead_pairs": lead.pairs if lead else None,
            }
        )
    return rows


def _about(cell: PaperCell) -> dict[str, Any]:
    """What was played: a column's name is the paper's."""
    if cell.played is None:
        return dict.fromkeys(("dataset", "model", "rounds"))
    return {"dataset": cell.played.data.name, "model": cell.played.model.name, "rounds": cell.played.rounds}


def to_markdown(found: PaperComparison) -> str:
    """The table under a caption, then what is to be said of it."""
    head, rows = _grid(found)
    lines = [head, ["---"] * len(head), *rows]
    body = "\n".join(f"| {' | '.join(text.replace('|', chr(92) + '|') for text in line)} |" for line in lines)
    said = "\n".join(f"- {line}" for line in remarks(found))
    return f"{caption(found)}\n\n{body}\n\n{said}\n"


def to_screen(found: PaperComparison) -> Screen:
    head, rows = _grid(found)
    screen = Screen(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in head:
        screen.add_column(title, overflow="fold")
    for row in rows:
        screen.add_row(*map(escape, row))
    return screen


def caption(found: PaperComparison) -> str:
    """What the numbers are."""
    text = (
        f"{found.name}, preset {found.preset}: best accuracy over the rounds in percent, mean ± standard deviation "
        "over n seeds and draws of the split."
    )
    return " ".join([text, *_mark(found), *_columns_in_words(found), likeness(found)]).strip()


def likeness(found: PaperComparison) -> str:
    """What was not as in the paper, and what follows for its numbers; nothing if all was."""
    said = [f"Not as in the paper: {', '.join(found.changed)}."] if found.changed else []
    by_words: dict[str, list[str]] = {}
    for column, words in found.replaced.items():
        by_words.setdefault(", ".join(words), []).append(column)
    said += [f"No number of the paper stands beside {', '.join(of)}: {words}." for words, of in by_words.items()]
    if any(cell.printed and not cell.exact for cell in found.cells):
        said.append("The paper's numbers are those of its own settings, so none is marked as far off.")
    return " ".join(said)


def _columns_in_words(found: PaperComparison) -> list[str]:
    """What the columns after the paper's numbers are."""
    said = []
    if found.speeds:
        said.append(
            "Speed-up: rounds played, divided by the first round that has FedAvg's best accuracy; not reached: some "
            "repetition never has it and counts as 1, where the paper prints 1.00 or Failed."
        )
    if _has_leads(found):
        said.append(f"{found.own} less it: mean of the n paired differences, with their 95 % interval from two on.")
    return said


def _has_leads(found: PaperComparison) -> bool:
    return any(found.lead(cell) for cell in found.cells)


def _mark(found: PaperComparison) -> list[str]:
    comparable = any(cell.printed and cell.exact for cell in found.cells)
    return [f"{MARK}: more than {NEAR:g} points from the paper."] if comparable else []


def remarks(found: PaperComparison) -> list[str]:
    """Rank correlations, then what failed or is missing."""
    said = []
    for column in found.columns:
        said += [f"{column}: {line}" for line in (*_agreement(ranks(found.of(column))), *_uneven(found.of(column)))]
    said += [f"{cell.column}, {cell.method}: {why}" for cell in found.cells for why in cell.failed]
    return said + [f"missing: {what}" for what in found.missing]


def _agreement(order: RankCorrelation) -> list[str]:
    """How far the order of the methods is the paper's."""
    what = "rank correlation with the paper"
    if not order.methods:  # no number of the paper
        return []
    if not order.shared:
        return [f"{what} not defined: no repetition (a seed on a draw) that all {order.methods} methods have"]
    if not math.isfinite(order.rho):
        return [f"{what} not defined for {order.methods} methods"]
    of = f", on the {order.shared} of {order.known} repetitions that all of them have"
    return [f"{what} {order.rho:.2f} over {order.methods} methods{of if order.shared < order.known else ''}"]


def _uneven(cells: Sequence[PaperCell]) -> list[str]:
    """Means over different repetitions side by side."""
    sets = [set(cell.scores) for cell in cells if cell.scores]
    if all(each == sets[0] for each in sets):
        return []
    return ["methods have different repetitions (n); compare them by the paired differences, not by the means"]


def _grid(found: PaperComparison) -> tuple[list[str], list[list[str]]]:
    speeds, numbers = found.speeds, any(cell.printed for cell in found.cells)
    head = ["column", "method", "ours", "n", *["paper", "difference"] * numbers, *["speed-up", "paper's"] * speeds]
    leads = _has_leads(found)
    head += [f"{found.own} less it"] * leads
    rows = []
    for cell in found.cells:
        paper = spread(cell.printed.mean, cell.printed.std or math.nan, 2) if cell.printed else "–"
        row = [cell.column, cell.method, _ours(cell), str(len(cell.scores)), *[paper, _gap(cell)] * numbers]
        row += [_factor(cell), (cell.printed.speedup if cell.printed else "") or "–"] * speeds
        rows.append([*row, *[_lead(found, cell)] * leads])
    return head, rows


def _ours(cell: PaperCell) -> str:
    return "failed" if cell.failed and not cell.scores else spread(*cell.spread, 2)


def _gap(cell: PaperCell) -> str:
    if math.isnan(cell.difference):
        return "–"
    return f"{cell.difference:+.2f}{f' {MARK}' if cell.outside else ''}"


def _factor(cell: PaperCell) -> str:
    if not cell.factors:
        return "–"
    factor, reached = cell.speedup
    return f"{factor:.2f}{'' if reached else ', not reached'}"


def _lead(found: PaperComparison, cell: PaperCell) -> str:
    lead = found.lead(cell)
    if lead is None:
        return "–"
    interval = f" [{lead.low:+.2f}, {lead.high:+.2f}]" if math.isfinite(lead.low) else ""
    return f"{lead.mean:+.2f}{interval}, n={lead.pairs}"


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
