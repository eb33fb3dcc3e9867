"""The accuracies that a paper's table prints, under our names."""

from __future__ import annotations

from dataclasses import dataclass

from unskew.reproduce.paper_names import ours, rows

MEANS = ("mean", "accuracy_mean_percent")
STDS = ("std", "accuracy_std_percent")


@dataclass(frozen=True)
class PaperNumber:
    """One cell of a paper's table. speedup: as printed, which may be `Failed`, or empty; size: rows of a client."""

    method: str
    column: str
    setting: str
    mean: float
    std: float | None
    speedup: str
    size: str = ""


def read(file: str) -> dict[tuple[str, str], PaperNumber]:
    """(method, column) -> what is printed there; empty for tables of something else."""
    found = {}
    for row in rows(file):
        mean = next((row[name] for name in MEANS if row.get(name)), "")
        if not mean:
            continue
        words = ours(file, row)
        std = next((float(row[name]) for name in STDS if row.get(name)), None)
        size = row.get("local_size") or ""
        column = label(words, size)
        cell = PaperNumber(
            words["methods"], column, words["settings"], float(mean), std, row.get("speedup") or "", size
        )
        found[cell.method, column] = cell
    return found


def label(words: dict[str, str], size: str = "") -> str:
    """A column's name: dataset, strength of the skew, and what else tells columns apart.

    >>> label({"datasets": "cifar10", "settings": "alpha=0.05"})
    'cifar10-0.05'
    >>> label({"datasets": "cifar10", "settings": "q=3"}, "100")
    'cifar10-q3-100'
    """
    skew = words["settings"].removeprefix("alpha=").removeprefix("s=").replace("=", "")
    return "-".join(word for word in (words["datasets"], skew, words.get("models", ""), size) if word)
