"""Fixtures shared with tests/runner."""

from runner.conftest import (
    _parts,
    ctrl_c_enabled,
    grid_folder,
    grid_folder_once,
    many,
    no_data,
    recipe,
    short_page,
    unskew,
)

__all__ = [
    "_parts",
    "ctrl_c_enabled",
    "grid_folder",
    "grid_folder_once",
    "many",
    "no_data",
    "recipe",
    "short_page",
    "unskew",
]
