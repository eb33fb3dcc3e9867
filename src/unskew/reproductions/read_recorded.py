"""A table or figure from the recorded rows of its paper, without running anything.

A cell is looked up under every table and figure of the paper, because their recipes may share experiments and equal
experiments are one run. Cells that are not recorded are listed as missing; a row that matches only in part is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from unskew.base.errors import UserError
from unskew.config import recipe as recipes
from unskew.reproductions import target_plan as plans
from unskew.reproductions.missing import list_missing, repetition
from unskew.reproductions.near_matches import near_matches
from unskew.reproductions.record_runs import key_of
from unskew.reproductions.recorded_rows import Key, RecordedRuns, load_recorded
from unskew.reproductions.run_target import TargetRuns
from unskew.reproductions.target_catalogue import Target, targets
from unskew.reproductions.target_plan import ReproduceOptions, TargetPlan

# Columns that are not part of a row's key but must match if the user overrides them, by the overridden key.
OVERRIDE_COLUMNS = {"precision": "precision", "engine": "engine", "engine.name": "engine"}


def read(target: Target, options: ReproduceOptions, folder: Path, command: str) -> tuple[TargetPlan, TargetRuns]:
    """The cells that are recorded under `folder`, and their runs; the plan's `missing` names the others.

    A table uses all recorded seeds and draws of the split, unless the options name some. command: the command line that
    records what is missing.
    """
    if options.device is not None:
        raise UserError("--device: --recorded runs nothing; leave out one of the two")
    rows = load_recorded(folder, target.paper, command)
    options = replace(options, recorded=frozenset(rows.values_of("dataset")))
    requested = plans.make(target, options)
    widened = options if target.is_figure else _with_recorded_repetitions(options, requested, rows)
    plan = requested if widened == options else plans.make(target, widened)
    keys = _recorded_keys(plan, widened, rows)
    used = {key[1:] for key in keys.values()}  # the first column is the table, and several may show one run
    others = {key: line for key, line in rows.lines.items() if key[1:] not in used}
    lacking = [key_of(requested, cell) for cell in requested.grid.cells if cell.name not in keys]
    near = tuple(near_matches(lacking, others, _required_columns(options)))
    if not keys:
        hints = "".join(f"{line}\n" for line in near)
        raise UserError(f"{target.name}: no matching rows in {rows.folder}; {_recorded_values(rows)}\n"
                        f"{hints}to record it, run: {command}")  # fmt: skip
    missing, absent = list_missing(plan, {cell.name for cell in requested.grid.cells}, keys)
    recorded = tuple(cell for cell in plan.grid.cells if cell.name in keys)
    runs = tuple((cell, rows.run(keys[cell.name], cell)) for cell in recorded)
    grid = replace(plan.grid, cells=recorded)
    everything = (*plan.missing, *missing)
    plan = replace(plan, grid=grid, missing=everything, absent=(*plan.absent, *absent), near_matches=near)
    return plan, TargetRuns(runs, {})


def _with_recorded_repetitions(
    options: ReproduceOptions, requested: TargetPlan, rows: RecordedRuns
) -> ReproduceOptions:
    """Add the seeds and draws that have rows to the recipe's, unless the options name them."""
    own = {repetition(cell) for cell in requested.grid.cells}
    draws, seeds = options.draws, options.seeds
    if draws is None and not {key for key, _ in _overrides(options)} & {plans.DRAW_KEY, "partition"}:
        known = {draw for draw, _ in own if draw is not None}
        draws = tuple(sorted({*map(int, rows.values_of("partition_seed")), *known})) or None
    if seeds is None:
        seeds = ",".join(map(str, sorted({*map(int, rows.values_of("seed")), *(seed for _, seed in own)})))
    return replace(options, draws=draws, seeds=seeds)


def _recorded_keys(plan: TargetPlan, options: ReproduceOptions, rows: RecordedRuns) -> dict[str, Key]:
    """Name of a cell -> the key of its row; rows of the target itself take precedence."""
    required = _required_columns(options).items()
    recorded = {key for key, line in rows.lines.items() if all(line[column] == value for column, value in required)}
    wanted = {cell.name for cell in plan.grid.cells}
    keys: dict[str, Key] = {}
    for each in (plan, *_plans_of_other_targets(plan, options, rows)):
        for cell in each.grid.cells:
            if cell.name in wanted and (key := key_of(each, cell)) in recorded:
                keys.setdefault(cell.name, key)
    return keys


def _plans_of_other_targets(plan: TargetPlan, options: ReproduceOptions, rows: RecordedRuns) -> Iterator[TargetPlan]:
    """Plans of the paper's other targets that have rows: same options, limited to seeds and draws that have rows."""
    numbers = {column: set(rows.values_of(column)) for column in ("seed", "partition_seed")}
    seeds = {str(cell.seed) for cell in plan.grid.cells} & numbers["seed"]
    draws = tuple(draw for draw in options.draws or () if str(draw) in numbers["partition_seed"])
    options = replace(options, seeds=",".join(sorted(seeds)) or None, draws=draws or None)
    names = dict.fromkeys(cell.experiment.label for cell in plan.grid.cells)
    keys = set(rows.values_of("table")) - {plan.target.key}
    for other in targets().values():
        if other.paper == plan.target.paper and other.key in keys and other.recipe:
            own = plans.methods_of(other)
            same = replace(options, only=None, methods=(*own, *(name for name in names if name not in own)))
            yield plans.make(other, replace(same, draws=None) if other.is_figure else same)


def _recorded_values(rows: RecordedRuns) -> str:
    """The values that are recorded, for an error message."""
    words = [f"{column} {', '.join(rows.values_of(column))}" for column in ("preset", "rounds", "precision", "table")]
    return f"its rows have {'; '.join(words)}"


def _required_columns(options: ReproduceOptions) -> dict[str, str]:
    """Columns outside the key that rows must have, because the user overrides them."""
    return {OVERRIDE_COLUMNS[key]: str(value) for key, value in _overrides(options) if key in OVERRIDE_COLUMNS}


def _overrides(options: ReproduceOptions) -> list[tuple[str, object]]:
    return [recipes.split_override(text) for text in options.overrides]
