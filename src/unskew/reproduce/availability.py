"""What this machine and this version have: methods and data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.data import data_root
from unskew.data.dataset_catalogue import ENTRIES, status
from unskew.protocol import method_registry
from unskew.reproduce.paper_names import vocabulary


def unknown_in(spec: Any) -> list[str]:
    """The names in a method's specification that are neither a method nor a part.

    >>> unknown_in(["fedlmd", {"prox": {"mu": 1}}]), unknown_in("fedavg+feature")
    ([], ['feature'])
    """
    known = {*method_registry.known(), *method_registry.PARTS}
    names: list[str] = []
    for entry in spec if isinstance(spec, list | tuple) else [spec]:
        names += [word.strip() for word in entry.split("+")] if isinstance(entry, str) else list(entry)
    return [name for name in names if name not in known]


def how_to_get(dataset: str, data_dir: Path | None = None) -> str:
    """What to type for a dataset that is not here, or nothing. Of data of one's own only their reader can tell."""
    entry = next((entry for entry in ENTRIES if entry.name == dataset.partition(":")[0]), None)
    if entry is None:
        known = dataset in vocabulary()["stand_ins"].values()
        return f"{dataset}.npz is not in the data folder" if known and not _npz(dataset, data_dir) else ""
    found = status(entry, data_root(data_dir))
    if found.state == "present":
        return ""
    what = f"broken ({found.why})" if found.state == "broken" else "not in the data folder"
    return f"{entry.name} is {what}; get it: {entry.get}"


def _npz(dataset: str, data_dir: Path | None) -> bool:
    return (data_root(data_dir) / f"{dataset}.npz").is_file()
