"""Which methods this version has, and which datasets are in the dataset folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unskew.data import data_root
from unskew.data.dataset_catalogue import ENTRIES, status
from unskew.protocol import method_registry
from unskew.reproductions.paper_names import vocabulary


def unknown_names(spec: Any) -> list[str]:
    """Names in a method specification that are registered neither as a method nor as a part.

    >>> unknown_names(["fedlmd", {"prox": {"mu": 1}}]), unknown_names("fedavg+feature")
    ([], ['feature'])
    """
    known = {*method_registry.method_names(), *method_registry.PARTS}
    names: list[str] = []
    for entry in spec if isinstance(spec, list | tuple) else [spec]:
        names += [word.strip() for word in entry.split("+")] if isinstance(entry, str) else list(entry)
    return [name for name in names if name not in known]


def why_unavailable(dataset: str, data_dir: Path | None = None) -> str:
    """Why a dataset cannot be read and how to get it; empty if it can be read.

    Also empty for the user's own data, which only their reader can check.
    """
    entry = next((entry for entry in ENTRIES if entry.name == dataset.partition(":")[0]), None)
    if entry is None:
        known = dataset in vocabulary()["stand_ins"].values()
        return f"{dataset}.npz is not in the dataset folder" if known and not _has_npz(dataset, data_dir) else ""
    dataset_status = status(entry, data_root(data_dir))
    if dataset_status.state == "present":
        return ""
    broken = dataset_status.state == "broken"
    problem = f"broken ({dataset_status.reason})" if broken else "not in the dataset folder"
    return f"{entry.name} is {problem}; get it: {entry.how_to_get}"


def _has_npz(dataset: str, data_dir: Path | None) -> bool:
    return (data_root(data_dir) / f"{dataset}.npz").is_file()
