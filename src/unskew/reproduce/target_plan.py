"""From a target and what a person asked for to the cells that can be played here, and why others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.base.config_base import dotted
from unskew.base.errors import UserError, nearest
from unskew.compare import grid as grids
from unskew.compare.grid import GIVEN, Cell, CompareConfig, Grid
from unskew.config import recipe as recipes
from unskew.config.experiment import Experiment
from unskew.protocol import method_registry
from unskew.reproduce import substitute_data
from unskew.reproduce.availability import unknown_in
from unskew.reproduce.deviations import changed
from unskew.reproduce.paper_names import stands_for
from unskew.reproduce.target_catalogue import Target

PRESETS = ("paper", "released")
DRAW = "partition.seed"
OPTIONS = GIVEN | {"preset": "--preset paper"}


@dataclass(frozen=True)
class ReproduceOptions:
    """What a person typed; None where the recipe decides."""

    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: str | None = None
    draws: tuple[int, ...] | None = None
    rounds: int | None = None
    device: str | None = None
    preset: str = "paper"
    recorded: frozenset[str] | None = None  # to be shown from what was recorded: the datasets that have rows


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table, on one draw of the split; `own` is what makes it other than the recipe without columns.

    paper: the column's experiment as its recipe has it, whatever a person typed.
    """

    label: str
    own: dict[str, Any]
    paper: Experiment


@dataclass(frozen=True)
class TargetPlan:
    """The grid, the columns behind its settings, what is missing and why, and what a person changed."""

    target: Target
    grid: Grid
    columns: dict[str, TargetColumn]
    missing: tuple[str, ...]
    absent: tuple[str, ...]  # columns whose data are not here
    typed: tuple[tuple[str, Any], ...]
    changed: tuple[str, ...]  # of it what is not as in the paper, in words

    def column_of(self, cell: Cell) -> str:
        return self.columns[cell.setting].label


@dataclass(frozen=True)
class TargetSelection:
    """What can be played of what was asked for: methods, and the changes that make each column; and why not more.

    plain: the changes without what a person typed.
    """

    methods: list[dict[str, Any]]
    changes: dict[str, dict[str, Any]]
    plain: dict[str, dict[str, Any]]
    missing: list[str]
    absent: tuple[str, ...]


def make(target: Target, asked: ReproduceOptions, data_dir: Path | None = None) -> TargetPlan:
    """The plan, or a UserError where nothing of what was asked for can be played."""
    if asked.draws and target.is_figure:
        raise UserError(
            f"--draws: {target.name} is a figure, whose lines go over seeds; type partition.seed=N for another"
        )
    chosen = choose(target, asked, data_dir)
    stand_ins = {label: stands_for(label) for label in chosen.changes if target.is_figure}
    both = [f"{label} stands in for {of}" for label, of in stand_ins.items() if of and of in chosen.changes]
    if both:
        raise UserError(f"--only: {both[0]}; a figure shows one of them")
    if not chosen.changes or not chosen.methods:
        raise UserError(f"{target.name}: nothing of it can be played here\n" + "\n".join(chosen.missing))
    name, raw, compare = _read(target)
    columns, settings, plain = {}, {}, dotted(recipes.validate(raw, name).resolved())
    papers = _papers(name, raw, chosen)
    for draw in asked.draws or (None,):  # everything on the first draw of the split before the second
        for label, changes in chosen.changes.items():
            setting = label if draw is None else f"{label} draw {draw}".strip()
            own = {key: value for key, value in compare.settings.get(label, {}).items() if plain.get(key) != value}
            columns[setting] = TargetColumn(label, own, papers[label])
            settings[setting] = changes if draw is None else changes | {DRAW: draw}
    section: dict[str, Any] = {"methods": chosen.methods, "settings": settings, "metric": compare.metric}
    section |= {"note": compare.note, "seeds": compare.seeds if asked.seeds is None else asked.seeds}
    grid = grids.build(name, raw, grids.read(section, name), name)
    typed = _typed(asked)
    return TargetPlan(target, grid, columns, tuple(chosen.missing), chosen.absent, typed, changed(typed, plain))


def _papers(name: str, raw: dict[str, Any], chosen: TargetSelection) -> dict[str, Experiment]:
    """Each column as its recipe has it, with whatever method."""
    section = {"methods": chosen.methods[:1], "settings": chosen.plain, "seeds": "0"}
    return {cell.setting: cell.experiment for cell in grids.build(name, raw, grids.read(section, name), name).cells}


def choose(target: Target, asked: ReproduceOptions, data_dir: Path | None = None) -> TargetSelection:
    """Without a look at single runs, which takes longer."""
    name, raw, compare = _read(target)
    typed, preset, columns = _typed(asked), _preset(name, asked.preset), compare.settings or {"": {}}
    changes = {label: _changes(columns[label], preset, typed) for label in _chosen(asked.only, columns)}
    data = {label: _dataset(raw, each) for label, each in changes.items()}
    if asked.recorded is None:
        found = substitute_data.played(data, asked.only is not None, data_dir)
    else:
        found = substitute_data.recorded(data, asked.only is not None, asked.recorded)
    methods, missing = _methods(asked.methods, compare)
    # A stand-in's experiment in the paper is that of the column it stands in for.
    plain = {label: _changes(columns.get(stands_for(label), columns[label]), preset, ()) for label in found.here}
    here = {label: changes[label] for label in found.here}
    return TargetSelection(methods, here, plain, [*missing, *found.missing], tuple(found.absent))


def methods_of(target: Target) -> list[str]:
    """Labels of the methods in a target's recipe."""
    return list(_read(target)[2].methods)


def _read(target: Target) -> tuple[str, dict[str, Any], CompareConfig]:
    """A recipe's name, the settings of a run, and its section `compare`."""
    name, raw, section = recipes.read(str(target.recipe))
    return name, raw, grids.read(section or {}, name)


def _typed(asked: ReproduceOptions) -> tuple[tuple[str, Any], ...]:
    """Keys and values, with those that have options of their own."""
    pairs = [recipes.split_override(text) for text in asked.overrides]
    for key, _ in pairs:
        if (head := key.partition(".")[0]) in OPTIONS:
            raise UserError(f"{key}: this has an option of its own; type {OPTIONS[head]}")
    if asked.draws is not None and any(key in (DRAW, "partition") for key, _ in pairs):
        raise UserError(f"{DRAW}: given twice, by --draws and by an override; keep one of them")
    given = {"rounds": asked.rounds, "device": asked.device}
    return (*pairs, *((key, value) for key, value in given.items() if value is not None))


def _preset(recipe: str, name: str) -> dict[str, Any]:
    if name not in PRESETS:
        raise UserError(f"--preset: expected one of {', '.join(PRESETS)}, found {name!r}{nearest(name, PRESETS)}")
    return recipes.presets(recipe).get(name, {"preset": name})


def _changes(column: dict[str, Any], preset: dict[str, Any], typed: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Column over preset, what was typed over both. Names first, since another name drops a section's other keys."""
    names = {key: value for key, value in column.items() if key.endswith(".name")}
    below = {key: value for key, value in (names | preset | column).items() if key not in dict(typed)}
    return below | dict(typed)


def _chosen(only: tuple[str, ...] | None, columns: dict[str, Any]) -> list[str]:
    """In the recipe's order."""
    for label in only or ():
        if label not in columns:
            raise UserError(
                f"--only: expected columns among {', '.join(columns)}, found {label!r}{nearest(label, columns)}"
            )
    return [label for label in columns if only is None or label in only]


def _methods(names: tuple[str, ...] | None, compare: CompareConfig) -> tuple[list[dict[str, Any]], list[str]]:
    """Specifications by label, and what is to be said of methods that do not exist yet."""
    known = [*compare.methods, *method_registry.known()]
    for name in names or ():
        if name not in compare.methods and unknown_in(name):
            raise UserError(
                f"--methods: expected some of {', '.join(dict.fromkeys(known))}, found {name!r}{nearest(name, known)}"
            )
    wanted = {name: compare.methods.get(name, name) for name in names or compare.methods}
    absent = [label for label, spec in wanted.items() if unknown_in(spec)]
    said = [f"method {', '.join(absent)}: not implemented yet"] if absent else []
    return [{label: spec} for label, spec in wanted.items() if label not in absent], said


def _dataset(raw: dict[str, Any], changes: dict[str, Any]) -> str:
    """The data that a column needs."""
    for key, value in changes.items():
        if key.partition(".")[0] == "data":
            raw = recipes.change(raw, key, value)
    return str(raw.get("data", {}).get("name", "digits"))
