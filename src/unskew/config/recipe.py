"""Recipes: YAML, `extends:` another one, and dotted overrides, read into an `Experiment` or refused by key."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError

from unskew.base.errors import UserError, nearest, one_of
from unskew.config.experiment import Experiment
from unskew.protocol import method_registry

M = TypeVar("M", bound=BaseModel)
SECTIONS = ("data", "model", "partition", "engine")  # may be written as a name alone
CARRIED = {"partition": ("clients", "seed")}  # what every kind of a section has
# Sections with several kinds: a single key of them can be overridden where a recipe says nothing about the kind.
DEFAULTS = {"partition": {"name": "iid", "clients": 10}, "local": {"schedule": {"name": "exponential"}}}

NAMES = {"literal_error": "expected", "union_tag_invalid": "expected_tags"}  # where pydantic lists the allowed names


class _EachOnce(yaml.SafeLoader):
    """Refuses a key that is there twice, where YAML takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load(recipe: str, overrides: list[str] | None = None) -> tuple[str, Experiment]:
    """A recipe's short name and its experiment. `recipe` is a path or the name of one that comes with the package."""
    name, raw, _ = read(recipe, overrides)
    return name, validate(raw, str(recipe))


def read(recipe: str, overrides: list[str] | None = None) -> tuple[str, dict[str, Any], Any]:
    """A recipe's short name, the settings of a run, and its section `compare`, which a single run leaves aside.

    It leaves `presets` aside as well.
    """
    path = find(recipe)
    raw = merge(DEFAULTS, _read(path, ()))
    grid, _ = raw.pop("compare", None), raw.pop("presets", None)
    for override in overrides or []:
        raw = change(raw, *split_override(override))
    return path.stem, raw, grid


def presets(recipe: str) -> dict[str, dict[str, Any]]:
    """The section `presets` of a recipe: name -> dotted key -> value. `unskew reproduce` plays one of them."""
    path = find(recipe)
    found = _read(path, ()).get("presets", {})
    if not isinstance(found, dict) or not all(isinstance(changes, dict) for changes in found.values()):
        raise UserError(f"{path}: presets: expected name: {{dotted key: value}}, found {found!r}")
    return found


def find(recipe: str) -> Path:
    """The file behind a recipe's name or path."""
    shipped = Path(str(resources.files("unskew.recipes")))
    for path in (Path(recipe), shipped / f"{recipe}.yaml"):
        if path.is_file():
            return path
    names = sorted(p.stem for p in shipped.glob("*.yaml"))
    raise UserError(
        f"recipe: expected a YAML file or one of {', '.join(names)}, found {recipe!r}{nearest(recipe, names)}"
    )


def validate(raw: dict[str, Any], where: str) -> Experiment:
    """The experiment, or a UserError that names every offending key."""
    return read_as(Experiment, raw, where)


def read_as(schema: type[M], raw: dict[str, Any], where: str) -> M:
    """Raw settings as a record of that schema, or a UserError that names every offending key."""
    try:
        return schema(**raw)
    except ValidationError as error:
        raise UserError("\n".join(f"{where}: {_explain(e, schema)}" for e in error.errors())) from error


def _read(path: Path, below: tuple[Path, ...]) -> dict[str, Any]:
    path = path.resolve()
    if path in below:
        raise UserError(f"{path}: extends itself through {' -> '.join(p.name for p in (*below, path))}")
    try:
        raw = yaml.load(path.read_text(), _EachOnce) or {}  # as safe as safe_load: a SafeLoader, plain values alone
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}{where_and_why(error)}") from error
    if not isinstance(raw, dict) or not all(isinstance(key, str) for key in raw):
        raise UserError(f"{path}: expected keys and values such as 'rounds: 20', found {type(raw).__name__}")
    parent = raw.pop("extends", None)
    if parent is None:
        return _sections(raw)
    beside = path.parent / str(parent)
    try:
        base = beside if beside.is_file() else find(str(parent))
    except UserError as error:
        raise UserError(f"{path}: extends: {error}") from error
    return merge(_read(base, (*below, path)), _sections(raw))


def where_and_why(error: Exception) -> str:
    """What is wrong with a YAML text in one line, with line and column where the reader knows them."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return f": not readable as YAML: {error}"
    return f", line {mark.line + 1}, column {mark.column + 1}: not readable as YAML: {getattr(error, 'problem', error)}"


def _sections(raw: dict[str, Any]) -> dict[str, Any]:
    """Names alone as sections."""
    local = raw.get("local")
    if isinstance(local, dict) and isinstance(local.get("schedule"), str):
        raw = raw | {"local": local | {"schedule": {"name": local["schedule"]}}}
    return {key: {"name": v} if key in SECTIONS and isinstance(v, str) else v for key, v in raw.items()}


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` wins key by key; a section of another name replaces the old one, whose keys would not fit, but CARRIED."""
    out = dict(base)
    for key, value in over.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            same = value.get("name", old.get("name")) == old.get("name")
            carried = () if value.get("name") == "group" else CARRIED.get(key, ())  # groups bring their own clients
            value = merge(old if same else {k: old[k] for k in carried if k in old}, value)
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
        raise UserError(f"override {key}={value!r}{where_and_why(error)}") from error


def change(raw: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """The settings with another value at a dotted key."""
    head, _, rest = key.partition(".")
    if head == "method" and rest:
        return raw | {"method": _set_part(raw.get("method", "fedavg"), rest, value)}
    nested: Any = value
    for word in reversed(key.split(".")):
        nested = {word: nested}
    nested = _sections(nested)
    # `data=mnist` names another section, `data.validation=0.1` changes one key, `partition={...}` replaces all of it.
    return merge(raw, nested) if rest or isinstance(value, str) else raw | nested


def _set_part(spec: Any, path: str, value: Any) -> list[Any]:
    """`method.prox.mu=0.1`: a setting of a part that the method has."""
    name, dot, field = path.partition(".")
    have = list(method_registry.resolve(spec))
    wanted = [name] if name in have else list(method_registry.resolve(name))
    if not dot or not set(wanted) <= set(have):
        raise UserError(
            f"method.{path}: expected method.PART.FIELD with one of the parts {', '.join(have)}, found "
            f"{name!r}{nearest(name, have)}; to add a part write method=NAME+{name}"
        )
    return [*([spec] if isinstance(spec, str | dict) else spec), {name: {field: value}}]


def _explain(error: Any, schema: type[BaseModel]) -> str:
    """One pydantic error as key, what was wrong, what was found, and what is allowed."""
    path = [str(word) for word in error["loc"]]
    if error["type"] == "extra_forbidden":
        known = _keys(schema, path[:-1])
        return f"unknown key {'.'.join(_plain(path))}{nearest(path[-1], known)}; allowed here: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{'.'.join(_plain(path))}: a value is needed and none was given"
    if error["type"] in ("union_tag_not_found", "model_attributes_type"):
        names = [_tag(kind) for kind in _kinds(schema, path)]
        return f"{'.'.join(_plain(path))}: expected a name, one of {', '.join(names)}, found {error['input']!r}"
    if error["type"] in NAMES:
        names, found = re.findall(r"'(.*?)'", error["ctx"][NAMES[error["type"]]]), error["input"]
        found = found["name"] if error["type"] == "union_tag_invalid" else found
        return f"{'.'.join(_plain(path))}: {one_of(names, found)}"
    if error["type"] == "tuple_type":
        return f"{'.'.join(_plain(path))}: expected a list such as [{error['input']}], found {error['input']!r}"
    message = error["msg"].removeprefix("Value error, ")
    if not path:  # a rule about several keys, which the message names
        return message
    return f"{'.'.join(_plain(path)) or 'recipe'}: {message[:1].lower()}{message[1:]}, found {error['input']!r}"


def _plain(path: list[str]) -> list[str]:
    """Without what pydantic puts after a key with several kinds: a tag, or a type such as tuple[int, ...]."""
    kinds = [word for i, word in enumerate(path) if i == 0 or path[i - 1] not in ("partition", "schedule")]
    return [word for word in kinds if "[" not in word]


def _keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """Keys allowed at a place of the schema."""
    for word in path:
        field = model.model_fields.get(word)
        found = _models(field.annotation) if field else [m for m in _models(model) if word == _tag(m)]
        if len(found) > 1:
            tag = path[path.index(word) + 1] if word in path[:-1] else ""
            found = [m for m in found if _tag(m) == tag]
        if found:
            model = found[0]
    return list(model.model_fields)


def _kinds(model: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """What a section with several kinds may be."""
    for word in path[:-1]:
        model = _models(model.model_fields[word].annotation)[0]
    return _models(model.model_fields[path[-1]].annotation)


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("name")
    return str(field.default) if field else ""


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in get_args(annotation) for model in _models(arg)]
