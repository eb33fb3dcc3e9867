"""A table or figure from what is recorded of its paper, without playing.

A cell is found under whatever table or figure it was recorded: every recipe of the paper says which experiments its
rows are, and equal experiments are one run. What is not recorded is named, and nothing that
matches in part is taken for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from unskew.base.errors import UserError
from unskew.config import recipe as recipes
from unskew.reproduce import target_plan as plans
from unskew.reproduce.command_line import command
from unskew.reproduce.missing import lacks, repetition
from unskew.reproduce.record_runs import key_of
from unskew.reproduce.recorded_rows import Key, RecordedRuns, shelf
from unskew.reproduce.run_target import TargetRuns
from unskew.reproduce.target_catalogue import Target, targets
from unskew.reproduce.target_plan import ReproduceOptions, TargetPlan

# Columns that are no part of a key but count if a person typed them: which of them, by the key of a run.
TYPED = {"precision": "precision", "engine": "engine", "engine.name": "engine"}


def read(target: Target, asked: ReproduceOptions, folder: Path) -> tuple[TargetPlan, TargetRuns]:
    """The cells that are recorded under `folder` and their runs; the plan's `missing` names the others.

    A table takes all seeds and draws of the split that there are, unless some were asked for.
    """
    if asked.device is not None:
        raise UserError("--device: nothing is played with --recorded; leave one of them out")
    how = command(target.name, asked, folder)
    rows = shelf(folder, target.paper, how)
    asked = replace(asked, recorded=frozenset(rows.all_of("dataset")))
    plain = plans.make(target, asked)
    wide = asked if target.is_figure else _all_there_are(asked, plain, rows)
    plan = plain if wide == asked else plans.make(target, wide)
    keys = _keys(plan, wide, rows)
    if not keys:
        raise UserError(f"{target.name}: nothing of what was asked for is recorded in {rows.folder}; {_there(rows)}\n"
                        f"play it: {how}")  # fmt: skip
    gone, absent = lacks(plan, {cell.name for cell in plain.grid.cells}, keys)
    there = tuple(cell for cell in plan.grid.cells if cell.name in keys)
    runs = tuple((cell, rows.run(keys[cell.name], cell)) for cell in there)
    grid = replace(plan.grid, cells=there)
    return replace(plan, grid=grid, missing=(*plan.missing, *gone), absent=(*plan.absent, *absent)), TargetRuns(
        runs, {}
    )


def _all_there_are(asked: ReproduceOptions, plain: TargetPlan, rows: RecordedRuns) -> ReproduceOptions:
    """With the seeds and draws that have rows, beside those of the recipe; what was asked for by name stays."""
    own = {repetition(cell) for cell in plain.grid.cells}
    draws, seeds = asked.draws, asked.seeds
    if draws is None and not {key for key, _ in _overrides(asked)} & {plans.DRAW, "partition"}:
        known = {draw for draw, _ in own if draw is not None}
        draws = tuple(sorted({*map(int, rows.all_of("partition_seed")), *known})) or None
    if seeds is None:
        seeds = ",".join(map(str, sorted({*map(int, rows.all_of("seed")), *(seed for _, seed in own)})))
    return replace(asked, draws=draws, seeds=seeds)


def _keys(plan: TargetPlan, asked: ReproduceOptions, rows: RecordedRuns) -> dict[str, Key]:
    """Name of a cell -> the key of its rows; those under the target's own name go first."""
    as_typed = [(TYPED[key], str(value)) for key, value in _overrides(asked) if key in TYPED]
    there = {key for key, line in rows.lines.items() if all(line[column] == value for column, value in as_typed)}
    wanted = {cell.name for cell in plan.grid.cells}
    found: dict[str, Key] = {}
    for each in (plan, *_others(plan, asked, rows)):
        for cell in each.grid.cells:
            if cell.name in wanted and (key := key_of(each, cell)) in there:
                found.setdefault(cell.name, key)
    return found


def _others(plan: TargetPlan, asked: ReproduceOptions, rows: RecordedRuns) -> Iterator[TargetPlan]:
    """What the other tables and figures of the paper that have rows would play, were they asked for the same: of its
    seeds and draws those that have rows."""
    numbers = {column: set(rows.all_of(column)) for column in ("seed", "partition_seed")}
    seeds = {str(cell.seed) for cell in plan.grid.cells} & numbers["seed"]
    draws = tuple(draw for draw in asked.draws or () if str(draw) in numbers["partition_seed"])
    asked = replace(asked, seeds=",".join(sorted(seeds)) or None, draws=draws or None)
    names = dict.fromkeys(cell.experiment.label for cell in plan.grid.cells)
    keys = set(rows.all_of("table")) - {plan.target.key}
    for other in targets().values():
        if other.paper == plan.target.paper and other.key in keys and other.recipe:
            own = plans.methods_of(other)
            same = replace(asked, only=None, methods=(*own, *(name for name in names if name not in own)))
            yield plans.make(other, replace(same, draws=None) if other.is_figure else same)


def _there(rows: RecordedRuns) -> str:
    """What a person might have meant."""
    words = [f"{column} {', '.join(rows.all_of(column))}" for column in ("preset", "rounds", "precision", "table")]
    return f"rows there have {'; '.join(words)}"


def _overrides(asked: ReproduceOptions) -> list[tuple[str, object]]:
    return [recipes.split_override(text) for text in asked.overrides]
