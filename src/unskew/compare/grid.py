"""A grid: methods x settings x seeds, with candidates for what is to be tuned. Every cell of it is one experiment."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from unskew import models
from unskew.base.config_base import ConfigSection
from unskew.base.environment import pick_device
from unskew.base.errors import UserError, nearest
from unskew.config import recipe as recipes
from unskew.config.experiment import Experiment
from unskew.protocol import method_registry

HELD_OUT = 0.1  # share of the training rows that a selection looks at where the recipe gives none
MANY = 1000  # seeds; more is a slip of the keyboard
GIVEN = {"seed": "--seeds 0,1", "method": "--methods fedavg,fedprox"}  # what the grid sets, and how to type it


class CompareConfig(ConfigSection):
    """The section `compare` of a recipe."""

    methods: dict[str, Any] = Field({}, description="a list of name, a+b, or {label: method as in a recipe}")
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1, description="numbers, or text such as 0-4")
    settings: dict[str, dict[str, Any]] = Field({}, description="label: {dotted key: value}")
    tune: dict[str, dict[str, list[Any]]] = Field({}, description="method's label: {dotted key: [candidates]}")
    metric: Literal["best", "final", "mean_last10"] = Field("mean_last10", description="what the verdict looks at")
    select: Literal["validation"] | None = Field(None, description="choose candidate and round on held-out rows")
    note: str = Field("", description="what a reader of the finding must know about this grid")

    @field_validator("methods", mode="before")
    @classmethod
    def _methods(cls, value: Any) -> dict[str, Any]:
        if not isinstance(value, list | tuple):
            raise ValueError("expected a list such as [fedavg, fedprox]")
        pairs = [pair for entry in value for pair in _labelled(entry)]
        labels = [label for label, _ in pairs]
        _check_labels(labels)
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"{', '.join(twice)} is there twice; give one another name, as in {{my {twice[0]}: ...}}")
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
    def _different(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError("expected every seed once")
        return value

    @field_validator("settings")
    @classmethod
    def _settings(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        _check_labels(value)
        return value

    @field_validator("settings", "tune")
    @classmethod
    def _not_the_grid(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for key in itertools.chain(*value.values()):
            if key in GIVEN:
                raise ValueError(f"{key} is the grid's own and goes under compare.{key}s")
        return value

    @field_validator("tune")
    @classmethod
    def _tunable(cls, value: dict[str, dict[str, list[Any]]], info: ValidationInfo) -> dict[str, dict[str, list[Any]]]:
        methods = list(info.data.get("methods", {}))
        for name, keys in value.items():
            if methods and name not in methods:
                raise ValueError(f"{name!r} is none of the methods {', '.join(methods)}{nearest(name, methods)}")
            if empty := [key for key, values in keys.items() if not values]:
                raise ValueError(f"{name}.{empty[0]} has no candidates")
            if twice := [key for key, values in keys.items() if len({repr(v) for v in values}) < len(values)]:
                raise ValueError(f"{name}.{twice[0]} has a candidate twice")
        return value


class _Section(ConfigSection):
    compare: CompareConfig


@dataclass(frozen=True)
class Cell:
    """One run of the grid. A method that is not tuned has one candidate without a name."""

    method: str
    candidate: str
    setting: str
    seed: int
    experiment: Experiment

    @property
    def label(self) -> str:
        """The method as the table calls it."""
        return f"{self.method} {self.candidate}".strip()

    @cached_property
    def name(self) -> str:
        """Of its folder; equal experiments share one, whatever the grid calls them."""
        return f"{self.experiment.label}-s{self.seed}-{self.experiment.identity()}"


@dataclass(frozen=True)
class Grid:
    """All cells, the first seed of everything before the second."""

    name: str
    compare: CompareConfig
    cells: tuple[Cell, ...]


def load(recipe: str, overrides: list[str] | None = None, options: dict[str, Any] | None = None) -> Grid:
    """The grid of a recipe. `options` replace keys of its section; a method named there may be a label of the recipe's.

    Every cell is checked as far as that goes without data: a mistake stops here, before anything is played.
    """
    for key in [recipes.split_override(text)[0] for text in overrides or []]:
        if (head := key.partition(".")[0]) in GIVEN:
            raise UserError(
                f"{key}: a comparison takes it from its grid; type {GIVEN[head]} or write a section compare:"
            )
    name, raw, section = recipes.read(recipe, overrides)
    recipes.validate(raw, recipe)
    compare = read(section if section is not None else {}, recipe)
    if options:
        compare = read(_replaced(section or {}, compare, options), recipe)
    return build(name, raw, compare, recipe)


def build(name: str, raw: dict[str, Any], compare: CompareConfig, where: str) -> Grid:
    """A grid over the settings of a recipe."""
    if not compare.methods:
        raise UserError(f"{where}: expected methods to compare, found none; type {GIVEN['method']} or write a section "
                        "compare: {methods: [fedavg, fedprox]}")  # fmt: skip
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
    """Numbers and ranges.

    >>> parse_seeds("0-2, 7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for word in text.split(","):
        found = re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", word.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not 0 <= last - first < MANY:
            raise ValueError("expected numbers and ranges such as 0,1,2 or 0-4")
        seeds += range(first, last + 1)
    return seeds


def read(section: Any, where: str) -> CompareConfig:
    """The section `compare`, or a UserError that names the offending key."""
    return recipes.read_as(_Section, {"compare": section}, where).compare


def _replaced(section: dict[str, Any], compare: CompareConfig, options: dict[str, Any]) -> dict[str, Any]:
    """The section with other values; what is tuned for a method that was left out goes with it."""
    if names := options.get("methods"):
        tune = {k: v for k, v in compare.tune.items() if k in names or k not in compare.methods}
        options = {"tune": tune} | options | {"methods": [{name: compare.methods.get(name, name)} for name in names]}
    return section | options


def _check_labels(labels: Iterable[str]) -> None:
    """A line break or another control character would tear the tables."""
    for label in labels:
        if any(unicodedata.category(sign) in ("Cc", "Zl", "Zp") for sign in label):
            raise ValueError(f"expected labels without line breaks and control characters, found {label!r}")


def _labelled(entry: Any) -> list[tuple[str, Any]]:
    """An entry of `methods` as label and specification; `{fedprox: {mu: 1}}` needs no label, its fields say enough."""
    if isinstance(entry, str):
        return [(entry.strip(), entry)]
    if not isinstance(entry, dict) or not entry or not all(isinstance(label, str) for label in entry):
        raise ValueError(f"expected a name, a+b or {{label: method}}, found the entry {entry!r}")
    known = {*method_registry.known(), *method_registry.PARTS}

    def is_spec(label: str, spec: Any) -> bool:
        return label in known and isinstance(spec, dict) and not set(spec) <= known

    return [(label, {label: spec} if is_spec(label, spec) else spec) for label, spec in entry.items()]


def _experiment(
    raw: dict[str, Any], compare: CompareConfig, method: str, seed: int, changes: dict[str, Any], where: str
) -> Experiment:
    """One cell's experiment, refused if it could not start."""
    settings = raw | {"method": compare.methods[method], "seed": seed}
    try:
        for key, value in changes.items():
            settings = recipes.change(settings, key, value)
        if compare.select and "validation" not in settings.get("data", {}):
            settings = recipes.change(settings, "data.validation", HELD_OUT)
        experiment = recipes.validate(settings, method)
        experiment.create_method().build(experiment.local.work(1, experiment.rounds))
        models.check_name(experiment.model.name)
        pick_device(experiment.device)
        if compare.select and not experiment.data.validation:
            raise UserError("data.validation: expected a share of rows to select on, found 0; try data.validation=0.1")
    except UserError as error:
        whose = "" if str(error).startswith(f"{method}: ") else f"{method}: "
        raise UserError(f"{where}: compare: {whose}{error}") from error
    return experiment
