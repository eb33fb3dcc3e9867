"""Which tables and figures can be played on this machine; found out, never written down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unskew.reproduce.availability import unknown_in
from unskew.reproduce.figures import FIGURES
from unskew.reproduce.paper_names import ours, rows
from unskew.reproduce.target_catalogue import NOTHING_TO_RUN, Target
from unskew.reproduce.target_plan import ReproduceOptions, choose

RUNNABLE, IN_PART, NOT_YET = "runnable", "in part", "not yet"


@dataclass(frozen=True)
class TargetStatus:
    """runnable, in part or not yet, and why not more."""

    word: str
    why: tuple[str, ...] = ()


def state(target: Target, data_dir: Path | None = None) -> TargetStatus:
    """What a plain `unskew reproduce TARGET` would find."""
    if target.kind in NOTHING_TO_RUN:
        return TargetStatus("-", (f"a {target.kind}, nothing to run",))
    if target.recipe is None:
        return TargetStatus(NOT_YET, ("no recipe", *_methods(target)))
    if target.is_figure and target.name not in FIGURES:
        return TargetStatus(NOT_YET, ("nothing draws it",))
    found = choose(target, ReproduceOptions(), data_dir)
    if not found.changes or not found.methods:
        return TargetStatus(NOT_YET, tuple(found.missing))
    return TargetStatus(IN_PART, tuple(found.missing)) if found.missing else TargetStatus(RUNNABLE)


def _methods(target: Target) -> list[str]:
    """Which of the methods in the paper's table do not exist yet."""
    named = {ours(target.numbers, row).get("methods", "") for row in rows(target.numbers)} if target.numbers else set()
    absent = sorted(name for name in named if name and unknown_in(name))
    return [f"not implemented: {', '.join(absent)}"] if absent else []
