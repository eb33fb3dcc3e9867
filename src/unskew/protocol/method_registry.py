"""Names of parts and methods, and the grammar that turns `a+b` or a list into parts.

A method is registered as a list of names of parts and other methods. Naming a part twice merges its settings; a later
owner of the model replaces an earlier one. `fedavg`, which most methods build on, is not applied again by a method that
only implies it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from unskew.base.errors import UserError, expected_one_of
from unskew.base.plugins import load_plugins
from unskew.protocol.method import Method
from unskew.protocol.part import Part

T = TypeVar("T", bound=Part)
Spec = str | dict[str, Any] | Sequence[Any]  # "a+b", {name: {field: value}}, or a list of both

PARTS: dict[str, type[Part]] = {}
METHODS: dict[str, tuple[str, ...]] = {}


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def part(name: str) -> Callable[[type[T]], type[T]]:
    """Register a part under a name: its annotated fields become validated hyper-parameters."""

    def register(cls: type[T]) -> type[T]:
        if not issubclass(cls, Part):
            raise UserError(f"part {name}: expected a subclass of us.Part, found the class {cls.__name__}")
        cls.name = name
        validated = dataclass(frozen=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))(cls)
        PARTS[name] = cast(type[Part], validated)
        return cast(type[T], validated)

    return register


def method(name: str, *parts: str) -> None:
    """Register a method as a list of parts and other methods, by name."""
    METHODS[name] = parts


def method_names() -> list[str]:
    """Every registered method, sorted."""
    _import_methods()
    return sorted(METHODS)


def resolve(spec: Spec) -> dict[str, dict[str, Any]]:
    """The parts of a specification, in order, with the settings given for each."""
    _import_methods()
    parts: dict[str, dict[str, Any]] = {}
    for entry in _entries(spec):
        name, settings = _name_and_settings(entry)
        names = _expand(name, top=True, seen=set(), parts=parts)
        if not _only_changes_settings(name, settings, parts):
            for each in names:
                _add_part(parts, each)
        for key, value in settings.items():
            parts[_part_with_field(name, key, [each for each in names if each in parts])][key] = value
    return parts


def _only_changes_settings(name: str, settings: dict[str, Any], parts: dict[str, Any]) -> bool:
    """Whether an entry changes settings of parts that are already listed, and adds no part."""
    return bool(settings) and (name in parts or (name in METHODS and set(resolve(name)) <= set(parts)))


def explicit_names(spec: Spec) -> list[str]:
    """The names as written in the specification, without entries that only change settings of earlier parts."""
    names: list[str] = []
    for entry in _entries(spec):
        name, settings = _name_and_settings(entry)
        if not (names and _only_changes_settings(name, settings, resolve(names))):
            names.append(name)
    return names


def label(spec: Spec) -> str:
    """The registered name of a method with exactly these parts, or the names as written, joined with +."""
    if not is_known(spec):  # of a finished run, whose code is not imported
        return "+".join(entry for entry in _entries(spec) if isinstance(entry, str))
    parts = tuple(resolve(spec))
    return next((name for name in method_names() if tuple(resolve(name)) == parts), "+".join(explicit_names(spec)))


def is_known(spec: Spec) -> bool:
    """Whether every name in a specification is registered."""
    _import_methods()
    names = (entry if isinstance(entry, str) else next(iter(entry)) for entry in _entries(spec))
    return all(name in PARTS or name in METHODS for name in names)


def create(parts: dict[str, dict[str, Any]]) -> Method:
    """The method with these parts and settings, validated."""
    return Method(tuple(_create_part(name, settings) for name, settings in parts.items()))


@cache  # called fifty times by a small experiment; listing the folder would take half of its preparation time
def _import_methods() -> None:
    """Import every file in `methods`; each registers itself."""
    import unskew.methods as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    load_plugins()


def _entries(spec: Spec) -> list[Any]:
    items = list(spec) if isinstance(spec, list | tuple) else [spec]
    out: list[Any] = []
    for item in items:
        if isinstance(item, str):
            out += [word.strip() for word in item.split("+")]
        elif isinstance(item, dict):
            out += [{name: settings} for name, settings in item.items()]
        else:
            raise UserError(
                f"method: expected a name, a+b, or a list of names and {{name: {{field: value}}}}, found {item!r}"
            )
    if not out:
        raise UserError("method: expected at least one name, found an empty list; try method=fedavg")
    return out


def _name_and_settings(entry: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, settings = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    if name not in PARTS and name not in METHODS:
        names = sorted({*METHODS, *PARTS})
        raise UserError(
            f"method: {expected_one_of(names, name)}; a method of your own needs --import FILE.py, or "
            "`imports: [FILE.py]` in the recipe"
        )
    if not isinstance(settings or {}, dict):
        raise UserError(f"method.{name}: expected settings as field: value, found {settings!r}")
    return name, settings or {}


def _expand(name: str, top: bool, seen: set[str], parts: dict[str, Any]) -> list[str]:
    """Part names behind a name. A method inside a method is skipped if all its parts are already listed or replaced."""
    if name not in METHODS or name in seen:
        return [name]
    if not top and parts and all(_is_covered(inner, parts) for inner in METHODS[name]):
        return []
    return [leaf for inner in METHODS[name] for leaf in _expand(inner, False, seen | {name}, parts)]


def _is_covered(name: str, parts: dict[str, Any]) -> bool:
    """Whether a part is listed, or another part already has its role as owner or objective."""
    if name in METHODS and name not in PARTS:
        return all(_is_covered(inner, parts) for inner in METHODS[name])
    role = "owner" if PARTS[name].owner else "objective" if PARTS[name].objective else None
    return name in parts or (role is not None and any(getattr(PARTS[other], role) for other in parts))


def _add_part(parts: dict[str, dict[str, Any]], name: str) -> None:
    if name in parts:
        return
    cls = PARTS[name]
    if cls.owner:
        for other in [other for other in parts if PARTS[other].owner]:
            del parts[other]
    if cls.objective and (rivals := [other for other in parts if PARTS[other].objective]):
        raise UserError(f"method: {name} and {rivals[0]} are both the main loss; keep one of them")
    parts[name] = {}


def _part_with_field(name: str, key: str, names: list[str]) -> str:
    """The part that has the field `key`, which was given under the name of a part or a method."""
    if name in names and name in PARTS:
        return name if key in PARTS[name].__dataclass_fields__ else _refuse_field(name, key)  # type: ignore[attr-defined]
    candidates = [each for each in names if key in PARTS[each].__dataclass_fields__]  # type: ignore[attr-defined]
    return candidates[0] if len(candidates) == 1 else _refuse_field(name, key)


def _refuse_field(name: str, key: str) -> str:
    names = [name] if name in PARTS else _expand(name, True, set(), {})
    owners = [each for each in names if key in PARTS[each].__dataclass_fields__]  # type: ignore[attr-defined]
    if len(owners) > 1:
        raise UserError(
            f"method.{name}: expected a field of one part, found {key!r}, which {' and '.join(owners)} have; type it "
            f"under its part's name, as in {{{owners[0]}: {{{key}: ...}}}}"
        )
    fields = [f for each in names for f in PARTS[each].__dataclass_fields__]  # type: ignore[attr-defined]
    if not fields:
        raise UserError(f"method.{name}: found {key!r}; expected no settings")
    raise UserError(f"method.{name}: {expected_one_of(fields, key)}")


def _create_part(name: str, settings: dict[str, Any]) -> Part:
    for key in settings:
        if key not in PARTS[name].__dataclass_fields__:  # type: ignore[attr-defined]
            _refuse_field(name, key)
    try:
        return PARTS[name](**settings)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(word) for word in ("method", name, *first["loc"]))
        if first["type"] == "literal_error":
            words = re.findall(r"'(.*?)'", first["ctx"]["expected"])
            raise UserError(f"{path}: {expected_one_of(words, first['input'])}") from error
        raise UserError(f"{path}: {first['msg']}, found {first['input']!r}") from error
