"""What a reply must look like: names, dtypes, shapes, kinds and sizes, fixed before any client sends.

A contract is derived from the method by a dry run (client/dry_run.py). A reply is checked before any of it is used.
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

HEADER_BYTES = 64 * 1024  # allowed on top of a reply's numbers and names
NAME_BYTES = 256  # allowed for the name, dtype and shape of one tensor


class RefusedError(Exception):
    """A reply that breaks its contract; the message names what was expected and what was found."""


class TensorSpec(NamedTuple):
    """One tensor: its dtype and shape, or at most `max_rows` rows of that shape."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    max_rows: int | None = None  # None: a tensor of exactly this shape

    @property
    def bytes(self) -> int:
        numbers = torch.Size(self.shape).numel() * (1 if self.max_rows is None else self.max_rows)
        return numbers * self.dtype.itemsize

    def scaled(self, factor: float) -> TensorSpec:
        """The same spec with the bound on rows multiplied by a factor."""
        return self if self.max_rows is None else self._replace(max_rows=math.ceil(self.max_rows * factor))

    def fits(self, t: Tensor, axes: int = 0) -> bool:
        """Whether a tensor matches; `axes`: its number of leading client axes, 1 for a cohort's stack."""
        if t.dtype != self.dtype:
            return False
        shape = t.shape[axes:]
        if self.max_rows is None:
            return shape == self.shape
        return len(shape) == len(self.shape) + 1 and shape[1:] == self.shape and shape[0] <= self.max_rows

    def __str__(self) -> str:
        shape = f"[{', '.join(map(str, self.shape))}]"
        rows = "" if self.max_rows is None else f"at most {self.max_rows} rows of "
        return f"{rows}{_dtype_name(self.dtype)} {shape}"


Specs = TensorSpec | dict[str, Any]  # one tensor's, or nested by name


@dataclass(frozen=True)
class Contract:
    """What one client must send in one phase: part -> artefact -> its tensors; all of them, and no others."""

    specs: dict[str, dict[str, Specs]]
    declared: dict[str, dict[str, Artefact]] = field(default_factory=dict)

    def check(self, message: Message, axes: int = 0) -> None:
        """Refuse, by name, a message with missing, extra or mismatching tensors."""
        _check_names("parts", self.specs, message)
        for part, specs in self.specs.items():
            _check_names(f"{part}: artefacts", specs, message[part])
            for name, spec in specs.items():
                _check_value(f"{part}/{name}", spec, message[part][name], axes)
            _check_equal_row_counts(part, specs, message[part], axes)

    def for_rows(self, derived: int, rows: int) -> Contract:
        """The contract of a client with `rows` rows, scaled from the `derived` rows that this one was derived for."""
        scaled = map_specs(lambda spec: spec.scaled(rows / derived), self.specs)
        return Contract(scaled, self.declared)

    @property
    def max_bytes(self) -> int:
        """Upper bound on the bytes of a reply that keeps the contract."""
        tensors = [spec for _, spec in self.tensors()]
        return HEADER_BYTES + sum(spec.bytes + NAME_BYTES for spec in tensors)

    def tensors(self) -> Iterator[tuple[str, TensorSpec]]:
        """(path, spec) of every tensor."""
        yield from _walk("", self.specs)

    def kind(self, part: str, artefact: str) -> str:
        return self.declared[part][artefact].kind


def map_specs(fn: Callable[[TensorSpec], TensorSpec], specs: Any) -> Any:
    """Apply `fn` to every spec in nested dicts."""
    return fn(specs) if isinstance(specs, TensorSpec) else {name: map_specs(fn, s) for name, s in specs.items()}


def specs_of(value: Value) -> Specs:
    """The specs of an artefact sent in a dry run; its number of rows is the most that a client may send."""
    if isinstance(value, Rows):
        return TensorSpec(value.x.dtype, tuple(value.x.shape[1:]), len(value.x))
    if isinstance(value, dict):
        return {name: specs_of(inner) for name, inner in value.items()}
    return TensorSpec(value.dtype, tuple(value.shape))


def _check_value(path: str, spec: Specs, value: Any, axes: int) -> None:
    if isinstance(spec, dict):
        if not isinstance(value, dict):
            raise RefusedError(f"{path}: expected tensors by name, found {_describe(value)}")
        _check_names(f"{path}: tensors", spec, value)
        for name, inner in spec.items():
            _check_value(f"{path}: {name}", inner, value[name], axes)
    elif not isinstance(value, Tensor) or not spec.fits(value, axes):
        raise RefusedError(f"{path}: expected {spec}, found {_describe(value, axes)}")


def _check_equal_row_counts(part: str, specs: dict[str, Specs], sent: dict[str, Any], axes: int) -> None:
    """A part's artefacts with the same bound, such as features and labels, describe the same rows: equally many."""
    by_bound: dict[int, dict[str, int]] = {}
    for name, spec in specs.items():
        if isinstance(spec, TensorSpec) and spec.max_rows is not None:
            by_bound.setdefault(spec.max_rows, {})[name] = sent[name].shape[axes]
    for counts in by_bound.values():
        if len(set(counts.values())) > 1:
            given = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise RefusedError(f"{part}: expected equally many rows of {', '.join(counts)}, found {given}")


def _check_names(path: str, expected: dict[str, Any], given: Any) -> None:
    if not isinstance(given, dict):
        raise RefusedError(f"{path}: expected {_join(expected)}, found {_describe(given)}")
    if given.keys() != expected.keys():
        missing = [f"no {name}" for name in expected if name not in given]
        extra = [f"{name!r} too" for name in given if name not in expected]
        raise RefusedError(f"{path}: expected {_join(expected)}, found {', '.join([*missing, *extra][:3])}")


def _walk(path: str, specs: dict[str, Any]) -> Iterator[tuple[str, TensorSpec]]:
    for name, spec in specs.items():
        if isinstance(spec, dict):
            yield from _walk(f"{path}{name}/", spec)
        else:
            yield f"{path}{name}", spec


def _join(names: dict[str, Any], limit: int = 4) -> str:
    first = list(names)[:limit]
    return f"{', '.join(first)}{', ...' if len(names) > limit else ''}" if first else "nothing"


def _describe(value: Any, axes: int = 0) -> str:
    if isinstance(value, Tensor):
        return f"{_dtype_name(value.dtype)} {list(value.shape[axes:])}"
    return "tensors by name" if isinstance(value, dict) else type(value).__name__


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
