"""Turn a description into the dictionary that `--json` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

OLD_KEYS = {"meaning": "told", "summary": "told", "extra": "beyond"}  # also written under these, for one version


def json_record(description: DataclassInstance) -> dict[str, Any]:
    """All fields, nested ones included, each under its name and, where it had another one before, under that too."""
    return asdict(
        description,
        dict_factory=lambda fields: {k: v for name, v in fields for k in (name, OLD_KEYS.get(name, name))},
    )
