"""The recorded results that come with unskew: in the wheel inside the package, in the repository beside the sources."""

from __future__ import annotations

from pathlib import Path

import unskew
from unskew.base.errors import UserError

SHIPPED = "shipped"  # in place of a folder's name


def results_folder(given: str | Path) -> Path:
    """The folder of recorded rows that the user named; `shipped` is the one that comes with unskew."""
    if str(given) != SHIPPED or Path(given).is_dir():
        return Path(given)
    package = Path(unskew.__file__).parent
    for folder in (package / "recorded", package.parents[1] / "results"):
        if any(folder.glob("*/accuracy.csv")):
            return folder
    raise UserError(
        f"--recorded {SHIPPED}: expected recorded results in this installation of unskew, found none; "
        "give the folder results/ of the repository"
    )
