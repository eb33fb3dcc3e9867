"""What a reply must look like: names, types, shapes, kinds and sizes, agreed on before anything is sent.

A contract is derived from the method by a dry run (client/dry_run.py). Nothing of a reply is used before its check.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unskew.base.tree import Message, Rows, Value
from unskew.protocol.part import Artefact

HEADER = 64 * 1024  # bytes that a reply may spend on anything but numbers, besides what its names take
NAME = 256  # bytes for the name, type and shape of one tensor


class RefusedError(Exception):
    """Why a reply is not used: what was expected and what was found."""


class TensorSpec(NamedTuple):
    """One tensor: its type and shape, or rows of a shape with a bound on their number."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    most_rows: int | None = None  # None: exactly one tensor of this shape

    @property
    def bytes(self) -> int:
        numbers = torch.Size(self.shape).numel() * (1 if self.most_rows is None else self.most_rows)
        return numbers * self.dtype.itemsize

    def times(self, factor: float) -> TensorSpec:
        """With a bound that is so many times as large."""
        return self if self.most_rows is None else self._replace(most_rows=math.ceil(self.most_rows * factor))

    def fits(self, t: Tensor, axes: int = 0) -> bool:
        """Whether a tensor with `axes` leading axes of a cohort is as agreed."""
        if t.dtype != self.dtype:
            return False
        shape = t.shape[axes:]
        if self.most_rows is None:
            return shape == self.shape
        return len(shape) == len(self.shape) + 1 and shape[1:] == self.shape and shape[0] <= self.most_rows

    def __str__(self) -> str:
        shape = f"[{', '.join(map(str, self.shape))}]"
        rows = "" if self.most_rows is None else f"at most {self.most_rows} rows of "
        return f"{rows}{_short(self.dtype)} {shape}"


Specs = TensorSpec | dict[str, Any]  # of a tensor, or by name


@dataclass(frozen=True)
class Contract:
    """What one client sends in one phase: part -> artefact -> its tensors; all of it, and nothing else."""

    specs: dict[str, dict[str, Specs]]
    declared: dict[str, dict[str, Artefact]] = field(default_factory=dict)

    def check(self, message: Message, axes: int = 0) -> None:
        """Refuse a message that lacks something, has too much, or has another type or shape; by name."""
        _same_names("parts", self.specs, message)
        for part, specs in self.specs.items():
            _same_names(f"{part}: artefacts", specs, message[part])
            for name, spec in specs.items():
                _check(f"{part}/{name}", spec, message[part][name], axes)
            _check_rows_together(part, specs, message[part], axes)

    def for_rows(self, derived: int, rows: int) -> Contract:
        """Of a client with more rows than the number that this was derived for: bounds grow in proportion."""
        scaled = tree_map_specs(lambda spec: spec.times(rows / derived), self.specs)
        return Contract(scaled, self.declared)

    @property
    def most_bytes(self) -> int:
        """The largest reply that can be as agreed."""
        tensors = [spec for _, spec in self.tensors()]
        return HEADER + sum(spec.bytes + NAME for spec in tensors)

    def tensors(self) -> Iterator[tuple[str, TensorSpec]]:
        """Every tensor by its path."""
        yield from _leaves("", self.specs)

    def kind(self, part: str, artefact: str) -> str:
        return self.declared[part][artefact].kind


def tree_map_specs(fn: Callable[[TensorSpec], TensorSpec], specs: Any) -> Any:
    """Apply `fn` to every spec of nested dicts."""
    return fn(specs) if isinstance(specs, TensorSpec) else {name: tree_map_specs(fn, s) for name, s in specs.items()}


def specs_of(value: Value) -> Specs:
    """The specs of what a dry run sent; rows are a bound on the rows that a client may send."""
    if isinstance(value, Rows):
        return TensorSpec(value.x.dtype, tuple(value.x.shape[1:]), len(value.x))
    if isinstance(value, dict):
        return {name: specs_of(inner) for name, inner in value.items()}
    return TensorSpec(value.dtype, tuple(value.shape))


def _check(where: str, spec: Specs, found: Any, axes: int) -> None:
    if isinstance(spec, dict):
        if not isinstance(found, dict):
            raise RefusedError(f"{where}: expected tensors by name, found {_like(found)}")
        _same_names(f"{where}: tensors", spec, found)
        for name, inner in spec.items():
            _check(f"{where}: {name}", inner, found[name], axes)
    elif not isinstance(found, Tensor) or not spec.fits(found, axes):
        raise RefusedError(f"{where}: expected {spec}, found {_like(found, axes)}")


def _check_rows_together(part: str, specs: dict[str, Specs], sent: dict[str, Any], axes: int) -> None:
    """Rows of one part with one bound belong together, such as features and their labels: equally many of each."""
    by_bound: dict[int, dict[str, int]] = {}
    for name, spec in specs.items():
        if isinstance(spec, TensorSpec) and spec.most_rows is not None:
            by_bound.setdefault(spec.most_rows, {})[name] = sent[name].shape[axes]
    for counts in by_bound.values():
        if len(set(counts.values())) > 1:
            found = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise RefusedError(f"{part}: expected equally many rows of {', '.join(counts)}, found {found}")


def _same_names(what: str, expected: dict[str, Any], found: Any) -> None:
    if not isinstance(found, dict):
        raise RefusedError(f"{what}: expected {_list(expected)}, found {_like(found)}")
    if found.keys() != expected.keys():
        missing = [f"no {name}" for name in expected if name not in found]
        more = [f"{name!r} too" for name in found if name not in expected]
        raise RefusedError(f"{what}: expected {_list(expected)}, found {', '.join([*missing, *more][:3])}")


def _leaves(path: str, specs: dict[str, Any]) -> Iterator[tuple[str, TensorSpec]]:
    for name, spec in specs.items():
        if isinstance(spec, dict):
            yield from _leaves(f"{path}{name}/", spec)
        else:
            yield f"{path}{name}", spec


def _list(names: dict[str, Any], most: int = 4) -> str:
    first = list(names)[:most]
    return f"{', '.join(first)}{', ...' if len(names) > most else ''}" if first else "nothing"


def _like(found: Any, axes: int = 0) -> str:
    if isinstance(found, Tensor):
        return f"{_short(found.dtype)} {list(found.shape[axes:])}"
    return "tensors by name" if isinstance(found, dict) else type(found).__name__


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
