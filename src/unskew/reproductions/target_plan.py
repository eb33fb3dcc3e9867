"""Turn a target and the user's options into the cells that can be run, and list why others cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unskew.base.config_base import dotted_keys
from unskew.base.errors import UserError, expected_one_of
from unskew.comparisons import grid as grids
from unskew.comparisons.grid import SET_BY_GRID, Cell, CompareConfig, Grid
from unskew.config import recipe as recipes
from unskew.config.experiment import Experiment
from unskew.protocol import method_registry
from unskew.reproductions import substitute_data
from unskew.reproductions.availability import unknown_names
from unskew.reproductions.deviations import changes_from_recipe
from unskew.reproductions.missing_cells import MissingCells
from unskew.reproductions.paper_names import stands_for
from unskew.reproductions.target_catalogue import Target

RULES = ("paper", "released")  # presets that every recipe has
DRAW_KEY = "partition.seed"
OPTION_FOR_KEY = SET_BY_GRID | {"preset": "--preset paper", "rules": "--preset paper"}


@dataclass(frozen=True)
class ReproduceOptions:
    """The user's options; None: the recipe decides."""

    overrides: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    seeds: str | None = None
    draws: tuple[int, ...] | None = None
    rounds: int | None = None
    device: str | None = None
    preset: str = "paper"
    recorded: frozenset[str] | None = None  # show recorded rows: the datasets that have any


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table, on one draw of the split.

    settings: what the column changes in the recipe; paper: the column's experiment as in the recipe, without overrides.
    """

    label: str
    settings: dict[str, Any]
    paper: Experiment


@dataclass(frozen=True)
class TargetPlan:
    """The grid, the columns behind its settings, what is missing and why, and what the user overrides."""

    target: Target
    grid: Grid
    columns: dict[str, TargetColumn]
    missing: tuple[MissingCells, ...]
    absent: tuple[str, ...]  # columns whose data are unavailable
    overrides: tuple[tuple[str, Any], ...]
    changed: tuple[str, ...]  # the overrides that differ from the recipe, in words
    preset: str = "paper"
    preset_changes: tuple[str, ...] = ()  # `key=value` of a preset that is neither the paper's text nor its code
    near_matches: tuple[str, ...] = ()  # what is recorded in place of missing cells

    def column_of(self, cell: Cell) -> str:
        return self.columns[cell.setting].label


@dataclass(frozen=True)
class TargetSelection:
    """The part of the request that can be run: methods, and each column's changes to the recipe; and what is missing.

    plain: the changes without the user's overrides.
    """

    methods: list[dict[str, Any]]
    changes: dict[str, dict[str, Any]]
    plain: dict[str, dict[str, Any]]
    missing: list[MissingCells]
    absent: tuple[str, ...]


def make(target: Target, options: ReproduceOptions, data_dir: Path | None = None) -> TargetPlan:
    """The plan, or a UserError if nothing of it can be run."""
    if options.draws and target.is_figure:
        raise UserError(
            f"--draws: {target.name} is a figure, which shows one draw of the split; choose it with partition.seed=N"
        )
    chosen = select(target, options, data_dir)
    substitutes = {label: stands_for(label) for label in chosen.changes if target.is_figure}
    pairs = [(label, original) for label, original in substitutes.items() if original in chosen.changes]
    both = [f"{label} is the substitute for {original}" for label, original in pairs if original]
    if both:
        raise UserError(f"--only: {both[0]}; a figure shows only one of them")
    if not chosen.changes or not chosen.methods:
        raise UserError(f"{target.name}: nothing can be run\n" + "\n".join(map(str, chosen.missing)))
    name, raw, compare = _read_recipe(target)
    columns, settings, plain = {}, {}, dotted_keys(recipes.validate(raw, name).resolved())
    papers = _paper_experiments(name, raw, chosen)
    for draw in options.draws or (None,):  # finish the first draw of the split before the second
        for label, changes in chosen.changes.items():
            setting = label if draw is None else f"{label} draw {draw}".strip()
            column = compare.settings.get(label, {})
            own = {key: value for key, value in column.items() if plain.get(key) != value}
            columns[setting] = TargetColumn(label, own, papers[label])
            settings[setting] = changes if draw is None else changes | {DRAW_KEY: draw}
    section: dict[str, Any] = {"methods": chosen.methods, "settings": settings, "metric": compare.metric}
    section |= {"note": compare.note, "seeds": compare.seeds if options.seeds is None else options.seeds}
    grid = grids.build(name, raw, grids.parse_section(section, name), name)
    overrides = _parse_overrides(options)
    changed = changes_from_recipe(overrides, plain)
    own = {} if options.preset in RULES else _preset_changes(name, options.preset)
    words = tuple(f"{key}={value}" for key, value in own.items())
    return TargetPlan(
        target, grid, columns, tuple(chosen.missing), chosen.absent, overrides, changed, options.preset, words
    )


def _paper_experiments(name: str, raw: dict[str, Any], chosen: TargetSelection) -> dict[str, Experiment]:
    """Each column's experiment as in the recipe, with the first method."""
    section = {"methods": chosen.methods[:1], "settings": chosen.plain, "seeds": "0"}
    return {
        cell.setting: cell.experiment for cell in grids.build(name, raw, grids.parse_section(section, name), name).cells
    }


def select(target: Target, options: ReproduceOptions, data_dir: Path | None = None) -> TargetSelection:
    """Select methods and columns without building single runs, which takes longer."""
    name, raw, compare = _read_recipe(target)
    overrides, preset = _parse_overrides(options), _preset_changes(name, options.preset)
    columns = compare.settings or {"": {}}
    labels = _select_columns(options.only, columns)
    changes = {label: _merge_changes(columns[label], preset, overrides) for label in labels}
    data = {label: _dataset(raw, each) for label, each in changes.items()}
    if options.recorded is None:
        usable = substitute_data.columns_on_disk(data, options.only is not None, data_dir)
    else:
        usable = substitute_data.columns_recorded(data, options.only is not None, options.recorded)
    methods, missing = _select_methods(options.methods, compare)
    # The paper's experiment for a stand-in is that of the column it stands in for.
    originals = {label: columns.get(stands_for(label), columns[label]) for label in usable.available}
    plain = {label: _merge_changes(original, preset, ()) for label, original in originals.items()}
    changes = {label: changes[label] for label in usable.available}
    return TargetSelection(methods, changes, plain, [*missing, *usable.missing], tuple(usable.absent))


def methods_of(target: Target) -> list[str]:
    """Labels of the methods in a target's recipe."""
    return list(_read_recipe(target)[2].methods)


def _read_recipe(target: Target) -> tuple[str, dict[str, Any], CompareConfig]:
    """The recipe's name, its settings of a run, and its section `compare`."""
    name, raw, section = recipes.read(str(target.recipe))
    return name, raw, grids.parse_section(section or {}, name)


def _parse_overrides(options: ReproduceOptions) -> tuple[tuple[str, Any], ...]:
    """Keys and values of the overrides, and of --rounds and --device."""
    pairs = [recipes.split_override(text) for text in options.overrides]
    for key, _ in pairs:
        if (head := key.partition(".")[0]) in OPTION_FOR_KEY:
            raise UserError(f"{key}: this has its own option; type {OPTION_FOR_KEY[head]}")
    if options.draws is not None and any(key in (DRAW_KEY, "partition") for key, _ in pairs):
        raise UserError(f"{DRAW_KEY}: given twice, by --draws and by an override; leave out one of the two")
    given = {"rounds": options.rounds, "device": options.device}
    return (*pairs, *((key, value) for key, value in given.items() if value is not None))


def _preset_changes(recipe: str, name: str) -> dict[str, Any]:
    """What a preset changes in the recipe; one that the recipe does not have is just the rules of that name."""
    presets = {rules: {"rules": rules} for rules in RULES} | recipes.presets(recipe)
    if name not in presets:
        raise UserError(f"--preset: {expected_one_of(presets, name)}")
    return presets[name]


def _merge_changes(
    column: dict[str, Any], preset: dict[str, Any], overrides: Sequence[tuple[str, Any]]
) -> dict[str, Any]:
    """Columns take precedence over the preset, overrides over both.

    Names go first, because changing a name drops the section's other keys.
    """
    names = {key: value for key, value in column.items() if key.endswith(".name")}
    changes = {key: value for key, value in (names | preset | column).items() if key not in dict(overrides)}
    return changes | dict(overrides)


def _select_columns(only: tuple[str, ...] | None, columns: dict[str, Any]) -> list[str]:
    """Labels of the requested columns, in the recipe's order."""
    for label in only or ():
        if label not in columns:
            raise UserError(f"--only: {expected_one_of(columns, label, 'columns among')}")
    return [label for label in columns if only is None or label in only]


def _select_methods(
    names: tuple[str, ...] | None, compare: CompareConfig
) -> tuple[list[dict[str, Any]], list[MissingCells]]:
    """Specifications by label, and an entry that names the methods that do not exist yet."""
    known = [*compare.methods, *method_registry.method_names()]
    for name in names or ():
        if name not in compare.methods and unknown_names(name):
            raise UserError(f"--methods: {expected_one_of(dict.fromkeys(known), name, 'some of')}")
    wanted = {name: compare.methods.get(name, name) for name in names or compare.methods}
    absent = [label for label, spec in wanted.items() if unknown_names(spec)]
    lines = [MissingCells("not implemented yet", methods=tuple(absent))] if absent else []
    return [{label: spec} for label, spec in wanted.items() if label not in absent], lines


def _dataset(raw: dict[str, Any], changes: dict[str, Any]) -> str:
    """The name of the dataset that a column needs."""
    for key, value in changes.items():
        if key.partition(".")[0] == "data":
            raw = recipes.apply_override(raw, key, value)
    return str(raw.get("data", {}).get("name", "digits"))
