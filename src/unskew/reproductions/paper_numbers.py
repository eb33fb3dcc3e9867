"""The accuracies printed in a paper's table, under our names."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.reproductions.paper_names import our_names, table_rows

MEANS = ("mean", "accuracy_mean_percent")
STDS = ("std", "accuracy_std_percent")


@dataclass(frozen=True)
class PaperNumber:
    """One cell of a paper's table. speedup: as printed, may be `Failed` or empty; size: rows per client."""

    method: str
    column: str
    setting: str
    mean: float
    std: float | None
    speedup: str
    size: str = ""


def read(file: str) -> dict[tuple[str, str], PaperNumber]:
    """(method, column) -> printed number; empty for tables of something other than accuracy."""
    numbers = {}
    for row in table_rows(file):
        mean = next((row[name] for name in MEANS if row.get(name)), "")
        if not mean:
            continue
        words = our_names(file, row)
        std = next((float(row[name]) for name in STDS if row.get(name)), None)
        size = row.get("local_size") or ""
        column = column_label(words, size)
        number = PaperNumber(
            words["methods"], column, words["settings"], float(mean), std, row.get("speedup") or "", size
        )
        numbers[number.method, column] = number
    return numbers


def column_label(words: dict[str, str], size: str = "") -> str:
    """A column's name: dataset, strength of the skew, then model and rows per client where columns differ by them.

    >>> column_label({"datasets": "cifar10", "settings": "alpha=0.05"})
    'cifar10-0.05'
    >>> column_label({"datasets": "cifar10", "settings": "q=3"}, "100")
    'cifar10-q3-100'
    """
    skew = words["settings"].removeprefix("alpha=").removeprefix("s=").replace("=", "")
    return "-".join(word for word in (words["datasets"], skew, words.get("models", ""), size) if word)
