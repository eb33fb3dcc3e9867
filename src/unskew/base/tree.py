"""State is a dict of name -> tensor; a tree is a dict of part -> its state. Nothing else is stored, sent or saved."""

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

State = dict[str, Tensor]
PartState = dict[str, Any]  # what a part keeps: tensors by name, which may be grouped once, as in {"u": {...}}
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

    By hand, because a small step spends a third of its time in torch's general form of it.
    """
    if isinstance(tree, Tensor):
        return fn(tree)
    if isinstance(tree, dict):
        return {name: tree_map(fn, inner) for name, inner in tree.items()}
    if isinstance(tree, tuple):
        inside = [tree_map(fn, inner) for inner in tree]
        return type(tree)(*inside) if hasattr(tree, "_fields") else tuple(inside)
    return tree


def flatten(tree: dict[str, Any], prefix: str = "") -> State:
    """Nested dicts to one dict with `/` between the levels, the form that files and the wire use.

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
    """What parts keep as one dict: `part/name`, and `part/group//name` where names are grouped; names may have slashes.

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
    """Equal-shaped trees to one tree with a leading axis; NumPy's arrays become tensors.

    A plan's small arrays stay NumPy's until then, because torch takes several times as long for each step on the way.

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
        # In a third of the time that np.stack takes for fifty of them.
        return torch.from_numpy(np.concatenate(trees).reshape(len(trees), *first.shape))
    if isinstance(first, dict):
        if odd := next((tree for tree in trees if tree.keys() != first.keys()), None):
            raise TypeError(f"stack: expected {', '.join(first)} in every tree, found {', '.join(odd)}")
        return {name: _stack([tree[name] for tree in trees]) for name in first}
    if isinstance(first, tuple | list):
        inside = [_stack(list(column)) for column in zip(*trees, strict=True)]
        return type(first)(*inside) if hasattr(first, "_fields") else type(first)(inside)
    if first is None:
        return None
    raise TypeError(f"stack: expected tensors in dicts, tuples and lists, found {type(first).__name__}")


def unstack(tree: Any, m: int) -> list[Any]:
    """The inverse of `stack`: one tree for each of `m` clients, made of views, and of rows those that are kept."""
    if isinstance(tree, dict):
        names, columns = list(tree), [unstack(inner, m) for inner in tree.values()]
        return [dict(zip(names, row)) for row in zip(*columns)] if columns else [{} for _ in range(m)]
    if isinstance(tree, Rows):
        return [x[keep] for x, keep in zip(tree.x.unbind(), tree.keep.unbind())]
    return list(tree.unbind())


def pack(value: Any) -> Any:
    """Drop padding rows."""
    if isinstance(value, Rows):
        return value.x[value.keep]
    return {name: pack(inner) for name, inner in value.items()} if isinstance(value, dict) else value


def size_in_bytes(value: Value) -> int:
    """Bytes of the numbers in a value, as they would be written."""
    if isinstance(value, Tensor):
        return value.nbytes
    return sum(map(size_in_bytes, value.values() if isinstance(value, dict) else value))


def as_state(value: Value) -> State:
    """A value as named tensors; a single one has no name."""
    return value if isinstance(value, dict) else {"": value}  # type: ignore[dict-item]


def numbered(n: int, like: Tensor) -> Tensor:
    """0 to n - 1, where that tensor is: a method need not say where it computes."""
    return torch.arange(n, device=like.device)
