"""Paths that a user types, and the name of the file that marks our folders."""

from __future__ import annotations

from pathlib import Path

from unskew.base.errors import UserError

MARKER = ".unskew.json"  # the file that makes a folder ours


def folder_path(text: str | Path) -> Path:
    """The path of a folder; an empty text, which Python takes for the current folder, is refused."""
    if not str(text):
        raise UserError('--out: expected the path of a folder, found an empty text; type "." for the current folder')
    return Path(text)
