"""Recipes: YAML files that may extend others, with dotted overrides, read into an `Experiment` or refused by key."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from unskew.base.errors import UserError, expected_one_of
from unskew.base.paths import MARKER
from unskew.config.experiment import RECORDED, Experiment
from unskew.config.explain_error import explain, explain_part
from unskew.config.user_code import UsedFile, check_available, import_files
from unskew.protocol import method_registry

M = TypeVar("M", bound=BaseModel)
SECTIONS = ("data", "model", "partition", "engine")  # may be written as just a name
KEPT_KEYS = {"partition": ("clients", "seed")}  # keys that every kind of a section has
# With these, single keys of a section with several kinds can be overridden if the recipe does not name the kind.
DEFAULTS = {"partition": {"name": "iid", "clients": 10}, "local": {"schedule": {"name": "exponential"}}}


class _UniqueKeyLoader(yaml.SafeLoader):
    """Refuses duplicate keys, of which YAML would use the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problem = "expected a word before the colon, found a list or a mapping"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key.value}", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(recipe: str, overrides: list[str] | None = None) -> tuple[str, Experiment]:
    """A recipe's short name and its experiment. `recipe` is a path or the name of a shipped recipe."""
    name, raw, _ = read(recipe, overrides)
    return name, validate(raw, str(recipe))


def read(recipe: str, overrides: list[str] | None = None) -> tuple[str, dict[str, Any], Any]:
    """A recipe's short name, the settings of a run, and the section `compare`, which a single run does not use.

    `presets`, which it does not use either, is left out.
    """
    path = recipe_path(recipe)
    raw = merge(DEFAULTS, _read_file(path, ()))
    grid, _ = raw.pop("compare", None), raw.pop("presets", None)
    for override in overrides or []:
        raw = apply_override(raw, *split_override(override))
    return path.stem, raw, grid


def presets(recipe: str) -> dict[str, dict[str, Any]]:
    """The section `presets` of a recipe: name -> dotted key -> value. `unskew reproduce` runs one of them."""
    path = recipe_path(recipe)
    section = _read_file(path, ()).get("presets", {})
    if not isinstance(section, dict) or not all(isinstance(changes, dict) for changes in section.values()):
        raise UserError(f"{path}: presets: expected name: {{dotted key: value}}, found {section!r}")
    return section


def recipe_path(recipe: str) -> Path:
    """The file behind a recipe's name or path."""
    shipped = Path(str(resources.files("unskew.recipes")))
    for path in (Path(recipe), shipped / f"{recipe}.yaml"):
        if path.is_file():
            return path
    names = sorted(p.stem for p in shipped.glob("*.yaml"))
    raise UserError(f"recipe: {expected_one_of(names, recipe, 'a YAML file or one of')}")


def validate(raw: dict[str, Any], where: str) -> Experiment:
    """The experiment, or a UserError that names every offending key."""
    return parse_as(Experiment, raw, where)


def read_recorded(raw: dict[str, Any], where: str) -> Experiment:
    """The experiment of a run's folder, readable also where the code of its own parts is not imported."""
    try:
        return Experiment.model_validate(raw, context=RECORDED)
    except ValidationError as error:
        raise UserError("\n".join(f"{where}: {explain(e, Experiment)}" for e in error.errors())) from error


def parse_as(schema: type[M], raw: dict[str, Any], where: str) -> M:
    """Raw settings validated against a schema, or a UserError that names every offending key."""
    try:
        return schema(**raw)
    except ValidationError as error:
        raise UserError("\n".join(f"{where}: {explain(e, schema)}" for e in error.errors())) from error


def _read_file(path: Path, children: tuple[Path, ...]) -> dict[str, Any]:
    path = path.resolve()
    if path in children:
        raise UserError(f"{path}: extends itself through {' -> '.join(p.name for p in (*children, path))}")
    try:
        raw = yaml.load(path.read_text(), _UniqueKeyLoader) or {}  # a SafeLoader, as safe as safe_load
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}{describe_yaml_error(error)}") from error
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise UserError(f"{path}: expected keys and values such as 'rounds: 20', found {type(raw).__name__}")
    _import_own(raw, path, children)
    parent = raw.pop("extends", None)
    if parent is None:
        return _expand_names(raw)
    relative = path.parent / str(parent)
    try:
        base = relative if relative.is_file() else recipe_path(str(parent))
    except UserError as error:
        raise UserError(f"{path}: extends: {error}") from error
    return merge(_read_file(base, (*children, path)), _expand_names(raw))


def _import_own(raw: dict[str, Any], path: Path, children: tuple[Path, ...]) -> None:
    """Import the files that a recipe names, relative to it; what is in a folder of runs, or is extended from one, may
    come from others and is refused."""
    files = raw.pop("imports", [])
    if not isinstance(files, list) or not all(isinstance(file, str | dict) for file in files):
        raise UserError(f"{path}: imports: expected a list of Python files such as [mine.py], found {files!r}")
    used = [parse_as(UsedFile, file, f"{path}: imports") for file in files if isinstance(file, dict)]
    check_available(used, path.parent, "this recipe")
    if len(used) == len(files):
        return
    if used or any(_in_folder_of_runs(each) for each in (path, *children)):
        raise UserError(
            f"{path}: imports: a recipe in a folder of runs may come from others, so nothing that it names is "
            "imported; use --import, or copy the recipe to a folder of your own"
        )
    import_files((path.parent / file for file in files), f"{path}: imports:")


def _in_folder_of_runs(recipe: Path) -> bool:
    """Whether a recipe is in a folder that unskew wrote, at any depth."""
    names = (MARKER, "checkpoint/manifest.json")
    return any((folder / name).exists() for folder in recipe.parents for name in names)


def describe_yaml_error(error: Exception) -> str:
    """A YAML error in one line, with line and column if the parser reports them."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f": invalid YAML: {error}"
    return f", line {mark.line + 1}, column {mark.column + 1}: invalid YAML: {getattr(error, 'problem', error)}"


def _expand_names(raw: dict[str, Any]) -> dict[str, Any]:
    """Sections written as just a name as mappings with the key `name`."""
    local = raw.get("local")
    if isinstance(local, dict) and isinstance(local.get("schedule"), str):
        raw = raw | {"local": local | {"schedule": {"name": local["schedule"]}}}
    return {key: {"name": v} if key in SECTIONS and isinstance(v, str) else v for key, v in raw.items()}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over`; a section of another kind replaces the old one except for KEPT_KEYS."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            same = value.get("name", old.get("name")) == old.get("name")
            kept = () if value.get("name") == "group" else KEPT_KEYS.get(key, ())  # groups bring their own clients
            value = merge(old if same else {k: old[k] for k in kept if k in old}, value)
        out[key] = value
    return out


def split_override(text: str) -> tuple[str, Any]:
    """`local.lr=0.1` as a dotted key and a value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UserError(f"override: expected key=value such as local.lr=0.1, found {text!r}")
    try:
        return key, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"override {key}={value!r}{describe_yaml_error(error)}") from error


def apply_override(raw: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The settings with the value at a dotted key replaced."""
    head, _, rest = key.partition(".")
    if head in ("import", "imports"):
        raise UserError(f"{head}: a file of your own is given by --import FILE.py, or by `imports:` in a recipe")
    if head == "method" and rest:
        return raw | {"method": _set_part(raw.get("method", "fedavg"), rest, value)}
    nested: Any = value
    for name in reversed(key.split(".")):
        nested = {name: nested}
    nested = _expand_names(nested)
    # `data=mnist` names another section, `data.validation=0.1` changes one key, `partition={...}` replaces all of it.
    return merge(raw, nested) if rest or isinstance(value, str) else raw | nested


def _set_part(spec: Any, path: str, value: Any) -> list[Any]:
    """`method.prox.mu=0.1` sets a field of a part of the method."""
    name, dot, field = path.partition(".")
    parts = list(method_registry.resolve(spec))
    if not dot and not method_registry.is_known(name):
        raise UserError(explain_part(path, name, spec, parts))
    wanted = [name] if name in parts else list(method_registry.resolve(name))
    if not dot or not set(wanted) <= set(parts):
        raise UserError(explain_part(path, name, spec, parts))
    return [*([spec] if isinstance(spec, str | dict) else spec), {name: {field: value}}]
