"""State is a dict of name -> tensor; a tree is a dict of part -> its state. Nothing else is stored, sent or saved."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]
PartState = dict[str, Any]  # tensors by name, possibly grouped one level deep, as in {"u": {...}}
Tree = dict[str, PartState]  # part -> its state
Role = Literal["parameter", "statistic", "counter"]


class Rows(NamedTuple):
    """Rows of which some are padding: `x` is [n, ...], `keep` is [n] bool. The runner sends `x[keep]` only."""

    x: Tensor
    keep: Tensor


Value = Tensor | State | Rows
Message = dict[str, dict[str, Value]]  # part -> artefact -> value


def tree_map(fn: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """Apply `fn` to every tensor of nested dicts and tuples, keeping the structure (None stays None).

    Written by hand: a small step would spend a third of its time in torch's general pytree version.
    """
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, dict):
        return {name: tree_map(fn, inner) for name, inner in tree.items()}
    if isinstance(tree, tuple):
        items = [tree_map(fn, inner) for inner in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    return tree


def flatten(tree: dict[str, Any], prefix: str = "") -> State:
    """Nested dicts as one dict with `/` between the levels, the form used in files and on the wire.

    >>> flatten({"a": {"w": torch.tensor(1)}, "b": torch.tensor(2)})
    {'a/w': tensor(1), 'b': tensor(2)}
    """
    flat: State = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}{name}/") if isinstance(value, dict) else {prefix + name: value}
    return flat


def unflatten(flat: State, depth: int) -> dict[str, Any]:
    """The inverse of `flatten` down to `depth` levels; deeper slashes stay in the name."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *folders, name = path.split("/", depth - 1)
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[name] = value
    return tree


def flatten_parts(tree: Tree) -> State:
    """The states of all parts as one dict: `part/name`, or `part/group//name` for grouped names; names may contain `/`.

    >>> flatten_parts({"curv": {"u": {"w": torch.tensor(1)}, "a/b": torch.tensor(2)}})
    {'curv/u//w': tensor(1), 'curv/a/b': tensor(2)}
    """
    flat: State = {}
    for part, state in tree.items():
        for name, value in state.items():
            group = {f"{name}//{key}": t for key, t in value.items()} if isinstance(value, dict) else {name: value}
            flat |= {f"{part}/{key}": t for key, t in group.items()}
    return flat


def unflatten_parts(flat: State) -> Tree:
    """The inverse of `flatten_parts`."""
    tree: Tree = {}
    for path, value in flat.items():
        part, _, rest = path.partition("/")
        group, grouped, name = rest.partition("//")
        state = tree.setdefault(part, {})
        if grouped:
            state.setdefault(group, {})[name] = value
        else:
            state[rest] = value
    return tree


def stack(trees: Iterable[Any]) -> Any:
    """Stack equal-shaped trees along a new leading axis; NumPy arrays become tensors.

    A plan's small arrays stay in NumPy up to this point, because torch takes several times as long per operation.

    >>> stack([{"a": np.array([1, 2])}, {"a": np.array([3, 4])}])
    {'a': tensor([[1, 2],
            [3, 4]])}
    """
    return _stack(list(trees))


def _stack(trees: list[Any]) -> Any:
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(trees)
    if isinstance(first, np.ndarray):
        if any(array.shape != first.shape for array in trees):
            raise TypeError(f"stack: expected arrays of one shape, found {sorted({array.shape for array in trees})}")
        # For fifty arrays this takes a third of the time of np.stack.
        return torch.from_numpy(np.concatenate(trees).reshape(len(trees), *first.shape))
    if isinstance(first, dict):
        if other := next((tree for tree in trees if tree.keys() != first.keys()), None):
            raise TypeError(f"stack: expected {', '.join(first)} in every tree, found {', '.join(other)}")
        return {name: _stack([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple | list):
        items = [_stack(list(column)) for column in zip(*trees, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
    if first is None:
        return None
    raise TypeError(f"stack: expected tensors in dicts, tuples and lists, found {type(first).__name__}")


def unstack(tree: Any, m: int) -> list[Any]:
    """The inverse of `stack`: one tree of views for each of `m` clients, without the padding of `Rows`."""
    if isinstance(tree, dict):
        names, columns = list(tree), [unstack(inner, m) for inner in tree.values()]
        return [dict(zip(names, row)) for row in zip(*columns)] if columns else [{} for _ in range(m)]
    if isinstance(tree, Rows):
        return [x[keep] for x, keep in zip(tree.x.unbind(), tree.keep.unbind())]
    return list(tree.unbind())


def drop_padding(value: Any) -> Any:
    """A message with the padding removed from every `Rows`."""
    if isinstance(value, Rows):
        return value.x[value.keep]
    return {name: drop_padding(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def size_in_bytes(value: Value) -> int:
    """Size of a value's numbers in bytes, as they would be written to a file."""
    if isinstance(value, Tensor):
        return value.nbytes
    return sum(map(size_in_bytes, value.values() if isinstance(value, dict) else value))


def as_state(value: Value) -> State:
    """A value as named tensors; a single tensor gets the empty name."""
    return value if isinstance(value, dict) else {"": value}  # type: ignore[dict-item]


def arange_like(n: int, like: Tensor) -> Tensor:
    """0 to n - 1 on the device of `like`, so that methods need not pass a device."""
    return torch.arange(n, device=like.device)
