"""Names of parts and methods, and the grammar that turns `a+b` or a list into parts.

A method is a name for a list of names. Naming a part twice merges its settings; a later owner of the model replaces an
earlier one; `fedavg`, which most methods build on, counts once when it is only implied.
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

from unskew.base.errors import UserError, nearest, one_of
from unskew.protocol.method import Method
from unskew.protocol.part import Part

T = TypeVar("T", bound=Part)
Spec = str | dict[str, Any] | Sequence[Any]

PARTS: dict[str, type[Part]] = {}
METHODS: dict[str, tuple[str, ...]] = {}
OLD_HOOKS = {"known": "label_stats", "now": "at_round"}  # the hooks' old names, for one version


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
def part(name: str) -> Callable[[type[T]], type[T]]:
    """Register a part: its annotated fields become validated hyper-parameters."""

    def register(cls: type[T]) -> type[T]:
        cls.name = name
        for old, new in OLD_HOOKS.items():
            if old in vars(cls):
                setattr(cls, new, vars(cls)[old])
        made = dataclass(frozen=True, config=ConfigDict(extra="forbid", arbitrary_types_allowed=True))(cls)
        PARTS[name] = cast(type[Part], made)
        return cast(type[T], made)

    return register


def method(name: str, *parts: str) -> None:
    """Register a method as a list of parts and other methods."""
    METHODS[name] = parts


def known() -> list[str]:
    """Every registered method, sorted; loading the package registers all files in it."""
    _load()
    return sorted(METHODS)


def resolve(spec: Spec) -> dict[str, dict[str, Any]]:
    """The parts a specification stands for, in order, with the settings given for each."""
    _load()
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries(spec):
        name, settings = _one(entry)
        names = _expand(name, top=True, seen=set(), have=found)
        if not _only_sets(name, settings, found):
            for each in names:
                _add(found, each)
        for key, value in settings.items():
            found[_holder(name, key, [each for each in names if each in found])][key] = value
    return found


def _only_sets(name: str, settings: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether an entry gives settings to parts that are all there, and adds nothing."""
    return bool(settings) and (name in found or (name in METHODS and set(resolve(name)) <= set(found)))


def typed_names(spec: Spec) -> list[str]:
    """The names a person wrote, without entries that only set fields of a part that is already there."""
    names: list[str] = []
    for entry in _entries(spec):
        name, settings = _one(entry)
        if not (names and _only_sets(name, settings, resolve(names))):
            names.append(name)
    return names


def label(spec: Spec) -> str:
    """The registered name of these parts, or the written names joined with +."""
    parts = tuple(resolve(spec))
    return next((name for name in known() if tuple(resolve(name)) == parts), "+".join(typed_names(spec)))


def create(parts: dict[str, dict[str, Any]]) -> Method:
    """The parts with their settings, validated."""
    return Method(tuple(_make(name, settings) for name, settings in parts.items()))


@cache  # a small experiment asks fifty times, and listing the folder is half of what preparing it takes
def _load() -> None:
    import unskew.methods as package

    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


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


def _one(entry: str | dict[str, Any]) -> tuple[str, dict[str, Any]]:
    name, settings = (entry, {}) if isinstance(entry, str) else next(iter(entry.items()))
    if name not in PARTS and name not in METHODS:
        words = sorted({*METHODS, *PARTS})
        raise UserError(
            f"method: expected one of {', '.join(words)}, found {name!r}{nearest(str(name), words)}; one of your own "
            "is known to a Python program that has imported its file, and not to the command line"
        )
    if not isinstance(settings or {}, dict):
        raise UserError(f"method.{name}: expected settings as field: value, found {settings!r}")
    return name, settings or {}


def _expand(name: str, top: bool, seen: set[str], have: dict[str, Any]) -> list[str]:
    """Names of parts behind a name; an implied method whose parts are all there (or replaced) is not applied again."""
    if name not in METHODS or name in seen:
        return [name]
    if not top and have and all(_present(inner, have) for inner in METHODS[name]):
        return []
    return [leaf for inner in METHODS[name] for leaf in _expand(inner, False, seen | {name}, have)]


def _present(name: str, have: dict[str, Any]) -> bool:
    if name in METHODS and name not in PARTS:
        return all(_present(inner, have) for inner in METHODS[name])
    role = "owner" if PARTS[name].owner else "objective" if PARTS[name].objective else None
    return name in have or (role is not None and any(getattr(PARTS[other], role) for other in have))


def _add(found: dict[str, dict[str, Any]], name: str) -> None:
    if name in found:
        return
    cls = PARTS[name]
    if cls.owner:
        for other in [other for other in found if PARTS[other].owner]:
            del found[other]
    if cls.objective and (rivals := [other for other in found if PARTS[other].objective]):
        raise UserError(f"method: {name} and {rivals[0]} are both the main loss; keep one of them")
    found[name] = {}


def _holder(name: str, key: str, names: list[str]) -> str:
    """The part that a field given under a method's or part's name belongs to."""
    if name in names and name in PARTS:
        return name if key in PARTS[name].__dataclass_fields__ else _refuse(name, key)  # type: ignore[attr-defined]
    holders = [each for each in names if key in PARTS[each].__dataclass_fields__]  # type: ignore[attr-defined]
    return holders[0] if len(holders) == 1 else _refuse(name, key)


def _refuse(name: str, key: str) -> str:
    names = [name] if name in PARTS else _expand(name, True, set(), {})
    known = [f for each in names for f in PARTS[each].__dataclass_fields__]  # type: ignore[attr-defined]
    allowed = f"one of {', '.join(known)}" if known else "no settings"
    raise UserError(f"method.{name}: expected {allowed}, found {key!r}{nearest(key, known)}")


def _make(name: str, settings: dict[str, Any]) -> Part:
    for key in settings:
        if key not in PARTS[name].__dataclass_fields__:  # type: ignore[attr-defined]
            _refuse(name, key)
    try:
        return PARTS[name](**settings)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(word) for word in ("method", name, *first["loc"]))
        if first["type"] == "literal_error":
            words = re.findall(r"'(.*?)'", first["ctx"]["expected"])
            raise UserError(f"{where}: {one_of(words, first['input'])}") from error
        raise UserError(f"{where}: {first['msg']}, found {first['input']!r}") from error
