"""The key that was meant by one that does not exist: `lr` is `local.lr`, `mu` is `method.prox.mu`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel

from unskew.protocol import method_registry

# What other frameworks call our keys.
OTHER_NAMES = {
    "aggregation": "method",
    "algorithm": "method",
    "batch_size": "local.batch",
    "classes_per_client": "partition.per_client",
    "communication_rounds": "rounds",
    "cuda": "device",
    "dataset": "data.name",
    "dirichlet": "partition.alpha",
    "dtype": "precision",
    "early_stopping": "stop",
    "eval_every": "evaluate.every",
    "frac": "participation",
    "fraction": "participation",
    "fraction_fit": "participation",
    "gpu": "device",
    "learning_rate": "local.lr",
    "local_epochs": "local.epochs",
    "model_name": "model.name",
    "n_clients": "partition.clients",
    "num_clients": "partition.clients",
    "num_epochs": "local.epochs",
    "num_rounds": "rounds",
    "num_users": "partition.clients",
    "num_workers": "engine.workers",
    "optimizer": "local.optimiser",
    "random_state": "seed",
    "scheduler": "local.schedule",
    "strategy": "method",
    "wd": "local.weight_decay",
}
SECTIONS = ("", "local", "partition", "data")  # first those whose keys are typed most often; "": no section
FEW = 2  # settings of parts that are listed next to a key of the experiment
SAME_SECTION, SIMILAR = 0.7, 0.8  # how similar a key must be, in the section that was typed and elsewhere


def suggest_keys(key: str, schema: type[BaseModel], allowed: Iterable[str]) -> list[str]:
    """Dotted keys that may have been meant, best first; at most three. allowed: the keys of its section."""
    section, word = key.rpartition(".")[0], _last(key).lower().replace("-", "_")
    if word in OTHER_NAMES:
        return [OTHER_NAMES[word]]
    known = sorted(dict.fromkeys(dotted_keys_of(schema)), key=_rank)
    same = [name for name in known if _last(name) == word and name != key][:1]
    of_parts = [name for name in part_keys() if _last(name) == word]
    if same or of_parts:
        return (same + of_parts if len(of_parts) <= FEW else same or of_parts)[:3]
    if close := difflib.get_close_matches(word, list(allowed), 1, SAME_SECTION):
        return [f"{section}.{close[0]}".lstrip(".")]
    close = difflib.get_close_matches(word, [_last(name) for name in known], 1, SIMILAR)
    return [name for name in known if _last(name) in close][:1]


def dotted_keys_of(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """All keys of a schema, those of every kind of a section included."""
    for name, field in schema.model_fields.items():
        if sections := schemas_in(field.annotation):
            for section in sections:
                yield from dotted_keys_of(section, f"{prefix}{name}.")
        elif name != "name":
            yield f"{prefix}{name}"


def part_keys(parts: Iterable[str] | None = None) -> list[str]:
    """`method.PART.FIELD` for the settings of some parts, by default of all."""
    method_registry.method_names()  # imports the methods
    names = sorted(method_registry.PARTS) if parts is None else parts
    return [f"method.{name}.{field}" for name in names for field in _fields(name)]


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _rank(key: str) -> int:
    section = key.partition(".")[0] if "." in key else ""
    return SECTIONS.index(section) if section in SECTIONS else len(SECTIONS)


def _fields(part: str) -> Iterable[str]:
    return method_registry.PARTS[part].__dataclass_fields__  # type: ignore[attr-defined]


def schemas_in(annotation: Any) -> list[type[BaseModel]]:
    """The schemas that a field's annotation allows."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [schema for argument in get_args(annotation) for schema in schemas_in(argument)]
