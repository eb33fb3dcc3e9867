"""Which tables and figures can be run on this machine; computed each time, never stored."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.reproductions.availability import unknown_names
from unskew.reproductions.figures import FIGURES
from unskew.reproductions.paper_names import our_names, table_rows
from unskew.reproductions.target_catalogue import NOT_RUNNABLE, Target
from unskew.reproductions.target_plan import ReproduceOptions, select

RUNNABLE, IN_PART, NOT_YET = "runnable", "in part", "not yet"


@dataclass(frozen=True)
class TargetStatus:
    """`word` is runnable, in part, not yet or -; `why` says what is missing."""

    word: str
    why: tuple[str, ...] = ()


def status_of(target: Target, data_dir: Path | None = None) -> TargetStatus:
    """The status of `unskew reproduce TARGET` without options."""
    if target.form in NOT_RUNNABLE:
        return TargetStatus("-", (f"a {target.form}, nothing to run",))
    if target.recipe is None:
        return TargetStatus(NOT_YET, ("no recipe", *_methods(target)))
    if target.is_figure and target.name not in FIGURES:
        return TargetStatus(NOT_YET, ("drawing it is not implemented",))
    selection = select(target, ReproduceOptions(), data_dir)
    missing = tuple(map(str, selection.missing))
    if not selection.changes or not selection.methods:
        return TargetStatus(NOT_YET, missing)
    return TargetStatus(IN_PART, missing) if missing else TargetStatus(RUNNABLE)


def _methods(target: Target) -> list[str]:
    """A line that names the methods in the paper's table that do not exist yet."""
    rows = table_rows(target.numbers) if target.numbers else []
    names = {our_names(target.numbers, row).get("methods", "") for row in rows}
    absent = sorted(name for name in names if name and unknown_names(name))
    return [f"not implemented: {', '.join(absent)}"] if absent else []
