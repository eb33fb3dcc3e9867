"""Installed packages that bring methods, models or datasets: their entry points are imported when names are looked up.

A package declares them in its pyproject.toml, for instance
    [project.entry-points."unskew.methods"]
    ours = "ours.methods"
"""

from __future__ import annotations

import warnings
from functools import cache

GROUPS = ("unskew.methods", "unskew.models", "unskew.data")


@cache
def load_plugins() -> None:
    """Import every entry point once. One that fails is reported and skipped: the others stay available."""
    from importlib.metadata import entry_points

    for group in GROUPS:
        for entry in entry_points(group=group):
            try:
                entry.load()
            except Exception as error:
                package = entry.dist.name if entry.dist else entry.value
                warnings.warn(
                    f"package {package}: its entry point {entry.name} in {group} failed with "
                    f"{type(error).__name__}: {error}; what it registers is unavailable",
                    stacklevel=2,
                )
