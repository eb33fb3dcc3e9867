"""Map the papers' spellings to our names, by `papers/names.yaml`."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import yaml

from unskew.data.partition import Classes, Dirichlet, Partition, Shards


@cache
def vocabulary() -> dict[str, dict[str, Any]]:
    """Kind of word -> spelling -> our name; under `tables`, file -> column -> kind of word."""
    words: dict[str, dict[str, Any]] = yaml.safe_load(read_text("names.yaml"))
    return words


def read_text(file: str) -> str:
    """The text of a file in `unskew.papers`."""
    return (resources.files("unskew.papers") / file).read_text(encoding="utf-8")


def table_rows(file: str) -> list[dict[str, str]]:
    """A packaged table as the paper prints it."""
    return list(csv.DictReader(io.StringIO(read_text(file))))


def our_names(file: str, row: dict[str, str]) -> dict[str, str]:
    """Kind of word -> our name, for a row of a table; a KeyError names an unmapped spelling.

    >>> row = {"method": "FedNTD", "dataset": "CIFAR-10", "setting": "alpha=0.05;model=ResNet-8"}
    >>> our_names("fedlmd_table4.csv", row)
    {'methods': 'fedntd', 'datasets': 'cifar10', 'settings': 'alpha=0.05', 'models': 'resnet8'}
    """
    words, names = vocabulary(), {}
    for column, kinds in words["tables"][file].items():
        spelled, _, model = row[column].partition(";model=")
        kind = next((kind for kind in kinds.split(" or ") if spelled in words[kind]), kinds)
        names[kind] = str(words[kind][spelled])
        if model:
            names["models"] = str(words["models"][model])
    return names


def format_columns(labels: Sequence[str]) -> str:
    """Columns as words for a sentence; a figure without columns has a single one with an empty label.

    >>> format_columns(["cifar10-2"]), format_columns(["cifar10-2", "mnist-2"]), format_columns([""])
    ('column cifar10-2', 'columns cifar10-2, mnist-2', 'everything')
    """
    if list(labels) == [""]:
        return "everything"
    return f"column{'s' * (len(labels) > 1)} {', '.join(labels)}"


def stands_for(label: str) -> str:
    """The label of the paper's column that a column stands in for; empty for the paper's own columns.

    >>> stands_for("hapt-q2-100"), stands_for("hapt"), stands_for("ucihar-q2-100")
    ('ucihar-q2-100', 'ucihar', '')
    """
    for original, stand_in in vocabulary()["stand_ins"].items():
        if label == stand_in or label.startswith(f"{stand_in}-"):
            return f"{original}{label.removeprefix(stand_in)}"
    return ""


def skew_label(partition: Partition) -> str:
    """The skew of a partition as the column `setting` in results/ spells it.

    >>> skew_label(Shards(clients=100, per_client=2)), skew_label(Dirichlet(clients=100, alpha=0.05))
    ('s=2', 'alpha=0.05')
    """
    if isinstance(partition, Dirichlet):
        return f"alpha={partition.alpha:g}"
    if isinstance(partition, Shards):
        return f"s={partition.per_client}"
    return f"q={partition.per_client}" if isinstance(partition, Classes) else partition.name
