"""The papers' spellings joined to ours, by one file: `papers/names.yaml`."""

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
    found: dict[str, dict[str, Any]] = yaml.safe_load(text("names.yaml"))
    return found


def text(file: str) -> str:
    """A file of the papers' facts."""
    return (resources.files("unskew.papers") / file).read_text(encoding="utf-8")


def rows(file: str) -> list[dict[str, str]]:
    """A packaged table as it is printed."""
    return list(csv.DictReader(io.StringIO(text(file))))


def ours(file: str, row: dict[str, str]) -> dict[str, str]:
    """What a row of a table is about, in our names: kind of word -> name. A KeyError names a spelling without one.

    >>> ours("fedlmd_table4.csv", {"method": "FedNTD", "dataset": "CIFAR-10", "setting": "alpha=0.05;model=ResNet-8"})
    {'methods': 'fedntd', 'datasets': 'cifar10', 'settings': 'alpha=0.05', 'models': 'resnet8'}
    """
    words, found = vocabulary(), {}
    for column, kinds in words["tables"][file].items():
        spelled, _, model = row[column].partition(";model=")
        kind = next((kind for kind in kinds.split(" or ") if spelled in words[kind]), kinds)
        found[kind] = str(words[kind][spelled])
        if model:
            found["models"] = str(words["models"][model])
    return found


def columns(labels: Sequence[str]) -> str:
    """In a sentence; a figure without columns has one without a name.

    >>> columns(["cifar10-2"]), columns(["cifar10-2", "mnist-2"]), columns([""])
    ('column cifar10-2', 'columns cifar10-2, mnist-2', 'all of it')
    """
    if list(labels) == [""]:
        return "all of it"
    return f"column{'s' * (len(labels) > 1)} {', '.join(labels)}"


def stands_for(label: str) -> str:
    """The column of the paper's that a column stands in for, by their labels; empty for the paper's own.

    >>> stands_for("hapt-q2-100"), stands_for("hapt"), stands_for("ucihar-q2-100")
    ('ucihar-q2-100', 'ucihar', '')
    """
    for theirs, mine in vocabulary()["stand_ins"].items():
        if label == mine or label.startswith(f"{mine}-"):
            return f"{theirs}{label.removeprefix(mine)}"
    return ""


def skew(partition: Partition) -> str:
    """A partition as the column `setting` of the results calls it.

    >>> skew(Shards(clients=100, per_client=2)), skew(Dirichlet(clients=100, alpha=0.05))
    ('s=2', 'alpha=0.05')
    """
    if isinstance(partition, Dirichlet):
        return f"alpha={partition.alpha:g}"
    if isinstance(partition, Shards):
        return f"s={partition.per_client}"
    return f"q={partition.per_client}" if isinstance(partition, Classes) else partition.name
