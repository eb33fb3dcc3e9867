"""A mistake in settings as a message for the user: the key, what was found, what was meant, and what is allowed."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from unskew.base.errors import expected_one_of
from unskew.config.key_hints import part_keys, schemas_in, suggest_keys
from unskew.protocol import method_registry

# Kind of pydantic's error -> key of its context that lists the allowed names.
NAMES_IN_CONTEXT = {"literal_error": "expected", "union_tag_invalid": "expected_tags"}


def explain_part(path: str, name: str, spec: Any, parts: list[str]) -> str:
    """Why `method.<path>` is no setting of a method with these parts."""
    field = path.rpartition(".")[2]
    if keys := [key for key in part_keys(parts) if key.rpartition(".")[2] == field]:
        return f"method.{path}: this method has no part {name!r}; did you mean {' or '.join(keys)}?"
    method = method_registry.label(spec)
    if keys := [key for key in part_keys() if key.rpartition(".")[2] == path]:
        part = keys[0].split(".")[1]
        return (
            f"method.{path}: no part of {method} ({', '.join(parts)}) has this setting; there is "
            f"{' and '.join(keys[:3])}: to add such a part type method={method}+{part} {keys[0]}=..."
        )
    advice = f"; to add the part type method={method}+{name}" if method_registry.is_known(name) else ""
    return f"method.{path}: {expected_one_of(parts, name, 'method.PART.FIELD with one of the parts')}{advice}"


def explain(error: Any, schema: type[BaseModel]) -> str:
    """One pydantic error as key, expected and found value, and the allowed names."""
    path = [str(word) for word in error["loc"]]
    if error["type"] == "extra_forbidden":
        known = _allowed_keys(schema, path[:-1])
        key, section = ".".join(_without_tags(path)), ".".join(_without_tags(path)[:-1])
        if kinds := _kinds_with(schema, path):
            return f"{key}: this key belongs to {section}.name={' or '.join(kinds)}, found {section}.name={path[1]}"
        meant = suggest_keys(key, schema, known)
        hint = f"; did you mean {' or '.join(meant)}? A" if meant else "; a"
        return f"unknown key {key}{hint}llowed{f' in {section}' if section else ''}: {', '.join(known)}"
    if error["type"] == "missing":
        return f"{'.'.join(_without_tags(path))}: expected a value, found none"
    if error["type"] in ("union_tag_not_found", "model_attributes_type"):
        names = [_tag(kind) for kind in _section_kinds(schema, path)]
        return f"{'.'.join(_without_tags(path))}: {expected_one_of(names, error['input'], 'a name, one of')}"
    if error["type"] in NAMES_IN_CONTEXT:
        names, value = re.findall(r"'(.*?)'", error["ctx"][NAMES_IN_CONTEXT[error["type"]]]), error["input"]
        value = value["name"] if error["type"] == "union_tag_invalid" else value
        return f"{'.'.join(_without_tags(path))}: {expected_one_of(names, value)}"
    if error["type"] == "tuple_type":
        return f"{'.'.join(_without_tags(path))}: expected a list such as [{error['input']}], found {error['input']!r}"
    message = error["msg"].removeprefix("Value error, ")
    if not path:  # from a model validator: the message names its keys
        return message
    words = f"{'.'.join(_without_tags(path))}: {message[:1].lower()}{message[1:]}"
    return words if re.search(r"\bfound\b", message) else f"{words}, found {error['input']!r}"


def _without_tags(path: list[str]) -> list[str]:
    """The path without what pydantic inserts for sections of several kinds: a tag, or a type (tuple[int, ...])."""
    kinds = [word for i, word in enumerate(path) if i == 0 or path[i - 1] not in ("partition", "schedule")]
    return [word for word in kinds if "[" not in word]


def _allowed_keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """Keys allowed at a path of the schema."""
    for word in path:
        field = model.model_fields.get(word)
        candidates = schemas_in(field.annotation) if field else [m for m in schemas_in(model) if word == _tag(m)]
        if len(candidates) > 1:
            tag = path[path.index(word) + 1] if word in path[:-1] else ""
            candidates = [m for m in candidates if _tag(m) == tag]
        if candidates:
            model = candidates[0]
    return list(model.model_fields)


def _kinds_with(schema: type[BaseModel], path: list[str]) -> list[str]:
    """The kinds of a section that have a key which the chosen kind has not."""
    if len(path) != 3 or path[0] not in schema.model_fields:
        return []
    return [_tag(kind) for kind in _section_kinds(schema, path[:1]) if path[2] in kind.model_fields]


def _section_kinds(model: type[BaseModel], path: list[str]) -> list[type[BaseModel]]:
    """The schemas among which the `name` of a section chooses."""
    for word in path[:-1]:
        model = schemas_in(model.model_fields[word].annotation)[0]
    return schemas_in(model.model_fields[path[-1]].annotation)


def _tag(model: type[BaseModel]) -> str:
    field = model.model_fields.get("name")
    return str(field.default) if field else ""
