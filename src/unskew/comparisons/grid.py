"""A grid: methods × settings × seeds, and candidate values to tune. Every cell is one experiment."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from unskew import models
from unskew.base.config_base import ConfigSection
from unskew.base.environment import pick_device
from unskew.base.errors import UserError, did_you_mean
from unskew.config import recipe as recipes
from unskew.config.experiment import Experiment
from unskew.protocol import method_registry

CUSTOM = "custom"  # name of a model that is passed from Python
VALIDATION_SHARE = 0.1  # of the training rows, held out for `select` unless the recipe sets another share
MAX_SEEDS = 1000  # a longer range is most likely a typing error
# Keys that the grid sets itself, with the option to use instead.
CLIENT_METRICS = ("clients_mean", "worst_tenth")
SET_BY_GRID = {"seed": "--seeds 0,1", "method": "--methods fedavg,fedprox"}


class CompareConfig(ConfigSection):
    """The section `compare` of a recipe."""

    methods: dict[str, Any] = Field({}, description="a list of name, a+b, or {label: method as in a recipe}")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="numbers, or text such as 0-4")
    settings: dict[str, dict[str, Any]] = Field({}, description="label: {dotted key: value}")
    tune: dict[str, dict[str, list[Any]]] = Field({}, description="method's label: {dotted key: [candidates]}")
    metric: Literal["best", "final", "mean_last10", "clients_mean", "worst_tenth"] = Field(
        "mean_last10", description="accuracy to rank by; the last two need evaluate.clients=true"
    )
    select: Literal["validation"] | None = Field(None, description="choose candidates and rounds on held-out rows")
    note: str = Field("", description="a remark to append to the finding")

    @field_validator("methods", mode="before")
    @classmethod
    def _methods(cls, value: Any) -> dict[str, Any]:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list such as [fedavg, fedprox]")
        pairs = [pair for entry in value for pair in _labels_and_specs(entry)]
        labels = [label for label, _ in pairs]
        _check_labels(labels)
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"{', '.join(twice)} is listed twice; rename one, as in {{my {twice[0]}: ...}}")
        return dict(pairs)

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, value: Any) -> Any:
        if isinstance(value, str):
            return parse_seeds(value)
        if isinstance(value, list | tuple) and not all(type(seed) is int for seed in value):
            raise ValueError("expected integers such as [0, 1, 2] or text such as 0-4")
        return value

    @field_validator("seeds")
    @classmethod
    def _no_repeats(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError("expected each seed once")
        return value

    @field_validator("settings")
    @classmethod
    def _settings(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        _check_labels(value)
        return value

    @field_validator("settings", "tune")
    @classmethod
    def _not_set_by_grid(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for key in itertools.chain(*value.values()):
            if key in SET_BY_GRID:
                raise ValueError(f"the grid itself sets {key}; write it under compare.{key}s")
        return value

    @field_validator("tune")
    @classmethod
    def _check_candidates(
        cls, value: dict[str, dict[str, list[Any]]], info: ValidationInfo
    ) -> dict[str, dict[str, list[Any]]]:
        methods = list(info.data.get("methods", {}))
        for name, keys in value.items():
            if methods and name not in methods:
                hint = did_you_mean(name, methods)
                raise ValueError(f"{name!r} is not one of the methods {', '.join(methods)}{hint}")
            if empty := [key for key, values in keys.items() if not values]:
                raise ValueError(f"{name}.{empty[0]} has no candidates")
            if twice := [key for key, values in keys.items() if len({repr(v) for v in values}) < len(values)]:
                raise ValueError(f"{name}.{twice[0]} lists a candidate twice")
        return value


class _Section(ConfigSection):
    compare: CompareConfig


@dataclass(frozen=True)
class Cell:
    """One run of the grid. A method without tuning has a single candidate with an empty name."""

    method: str
    candidate: str
    setting: str
    seed: int
    experiment: Experiment

    @property
    def label(self) -> str:
        """The label of its row in the table."""
        return f"{self.method} {self.candidate}".strip()

    @cached_property
    def name(self) -> str:
        """Name of its folder; equal experiments share one folder, whatever their labels."""
        return f"{self.experiment.label}-s{self.seed}-{self.experiment.identity()}"


@dataclass(frozen=True)
class Grid:
    """All cells: the first seed of every method and setting, then the second, and so on."""

    name: str
    compare: CompareConfig
    cells: tuple[Cell, ...]


def load(
    recipe: str | Path | Experiment,
    overrides: list[str] | None = None,
    options: dict[str, Any] | None = None,
    inputs: dict[str, str] | None = None,
) -> Grid:
    """The grid of a recipe. options: replace keys of its section `compare`; methods may be labels of that section.

    inputs: names of data and model that are passed from Python.

    Checks every cell as far as possible without data, so that mistakes surface before the first run.
    """
    for key in [recipes.split_override(text)[0] for text in overrides or []]:
        if (head := key.partition(".")[0]) in SET_BY_GRID:
            raise UserError(
                f"{key}: a comparison sets this key itself; use {SET_BY_GRID[head]} or the recipe's section compare"
            )
    name, raw, section = _read(recipe, overrides)
    for section_name, input_name in (inputs or {}).items():
        raw = raw | {section_name: raw.get(section_name, {}) | {"name": input_name}}
    where = "experiment" if isinstance(recipe, Experiment) else str(recipe)
    recipes.validate(raw, where)
    compare = parse_section(section if section is not None else {}, where)
    if options:
        compare = parse_section(_apply_options(section or {}, compare, options), where)
    return build(name, raw, compare, where)


def _read(recipe: str | Path | Experiment, overrides: list[str] | None) -> tuple[str, dict[str, Any], Any]:
    """Name, settings and section `compare` of a recipe, or of an experiment, which compares its own method."""
    if not isinstance(recipe, Experiment):
        return recipes.read(str(recipe), overrides)
    raw = recipe.resolved()
    for override in overrides or []:
        raw = recipes.apply_override(raw, *recipes.split_override(override))
    return "experiment", raw, {"methods": [{recipe.label: recipe.method}]}


def build(name: str, raw: dict[str, Any], compare: CompareConfig, where: str) -> Grid:
    """The grid of a recipe's raw settings. where: the recipe, for error messages."""
    if not compare.methods:
        raise UserError(
            f"{where}: expected methods to compare, found none; use {SET_BY_GRID['method']} or write a section "
            "compare: {methods: [fedavg, fedprox]}"
        )
    settings = compare.settings or {"": {}}
    cells = [
        Cell(
            method, candidate, setting, seed, _experiment(raw, compare, method, seed, settings[setting] | tuned, where)
        )
        for seed in compare.seeds
        for setting in settings
        for method in compare.methods
        for candidate, tuned in candidates(compare.tune.get(method, {}))
    ]
    return Grid(name, compare, tuple(cells))


def candidates(tune: dict[str, list[Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of values, with a short name.

    >>> [name for name, _ in candidates({"method.prox.mu": [0.1, 1], "local.lr": [0.5]})]
    ['mu=0.1, lr=0.5', 'mu=1, lr=0.5']
    """
    last = [key.rpartition(".")[2] for key in tune]
    names = [short if last.count(short) == 1 else key for short, key in zip(last, tune)]
    for values in itertools.product(*tune.values()):
        yield ", ".join(f"{name}={value}" for name, value in zip(names, values)), dict(zip(tune, values))


def parse_seeds(text: str) -> list[int]:
    """Parse numbers and ranges.

    >>> parse_seeds("0-2, 7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for word in text.split(","):
        match = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", word.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= last - first < MAX_SEEDS:
            raise ValueError("expected numbers and ranges such as 0,1,2 or 0-4")
        seeds += range(first, last + 1)
    return seeds


def parse_section(section: Any, where: str) -> CompareConfig:
    """Parse the section `compare`; a mistake is a UserError that names the key."""
    return recipes.parse_as(_Section, {"compare": section}, where).compare


def _apply_options(section: dict[str, Any], compare: CompareConfig, options: dict[str, Any]) -> dict[str, Any]:
    """The section with options applied; the candidates of a method that is left out are dropped with it."""
    if names := options.get("methods"):
        tune = {k: v for k, v in compare.tune.items() if k in names or k not in compare.methods}
        specs = [{name: compare.methods.get(name, name)} if isinstance(name, str) else name for name in names]
        options = {"tune": tune} | options | {"methods": specs}
    return section | options


def _check_labels(labels: Iterable[str]) -> None:
    """Refuse line breaks and other control characters, which would break the tables."""
    for label in labels:
        if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in label):
            raise ValueError(f"expected labels without line breaks and control characters, found {label!r}")


def _labels_and_specs(entry: Any) -> list[tuple[str, Any]]:
    """The labels and specifications in an entry of `methods`; `{fedprox: {mu: 1}}` is labelled by its method."""
    if isinstance(entry, str):
        return [(entry.strip(), entry)]
    if not isinstance(entry, dict) or not entry or not all(isinstance(label, str) for label in entry):
        raise ValueError(f"expected a name, a+b or {{label: method}}, found the entry {entry!r}")
    known = {*method_registry.method_names(), *method_registry.PARTS}

    def is_spec(label: str, spec: Any) -> bool:
        return label in known and isinstance(spec, dict) and not set(spec) <= known

    return [(label, {label: spec} if is_spec(label, spec) else spec) for label, spec in entry.items()]


def _experiment(
    raw: dict[str, Any], compare: CompareConfig, method: str, seed: int, changes: dict[str, Any], where: str
) -> Experiment:
    """The experiment of a cell; a UserError if it could not start."""
    settings = raw | {"method": compare.methods[method], "seed": seed}
    try:
        for key, value in changes.items():
            settings = recipes.apply_override(settings, key, value)
        if compare.select and "validation" not in settings.get("data", {}):
            settings = recipes.apply_override(settings, "data.validation", VALIDATION_SHARE)
        experiment = recipes.validate(settings, method)
        experiment.create_method().build(experiment.local.work(1, experiment.rounds))
        if experiment.model.name != CUSTOM:
            models.check_name(experiment.model.name)
        pick_device(experiment.device)
        if compare.metric in CLIENT_METRICS and not experiment.evaluate.clients:
            raise UserError(f"metric {compare.metric}: expected accuracies by client; add evaluate.clients=true")
        if compare.select and not experiment.data.validation:
            raise UserError("data.validation: expected a share of rows to select on, found 0; try data.validation=0.1")
    except UserError as error:
        prefix = "" if str(error).startswith(f"{method}: ") else f"{method}: "
        raise UserError(f"{where}: compare: {prefix}{error}") from error
    return experiment
