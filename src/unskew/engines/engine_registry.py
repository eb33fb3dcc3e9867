"""Engines by name, with their capabilities. An engine is imported only when a run uses it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from unskew.engines.engine import Engine, EngineContext

T = TypeVar("T")
AUTO = "auto"  # picks the engine by the device


class EngineEntry(NamedTuple):
    """An engine's capabilities. `load` returns its class, which takes a context and, if `workers`, their number."""

    description: str
    load: Callable[[], Any]
    workers: bool = False  # trains clients in several processes
    auto: tuple[str, ...] = ()  # device types on which `auto` picks it
    cls: type | None = None  # of an engine that is not the package's own


def _lazy_class(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)


ENGINES: dict[str, EngineEntry] = {
    "loop": EngineEntry(
        "client by client, in several processes",
        _lazy_class("unskew.engines.loop.loop_engine", "LoopEngine"),
        workers=True,
        auto=("cpu",),
    ),
    "stacked": EngineEntry(
        "all clients of a round in one tensor",
        _lazy_class("unskew.engines.stacked.stacked_engine", "StackedEngine"),
        auto=("cuda",),
    ),
    "plain": EngineEntry(
        "client by client with ordinary autograd and torch.optim, for debugging and as the reference",
        _lazy_class("unskew.engines.plain_engine", "PlainEngine"),
    ),
}


def engine(
    name: str, description: str, *, workers: bool = False, auto: tuple[str, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Register a class as an engine; if several declare a device in `auto`, the last one registered is picked."""

    def register(cls: type[T]) -> type[T]:
        ENGINES[name] = EngineEntry(description, lambda: cls, workers, auto, cls)
        return cls

    return register


def registered(name: str) -> type | None:
    """The class of an engine that was registered from outside the package."""
    return ENGINES[name].cls if name in ENGINES else None


def names() -> list[str]:
    """Every engine name that a recipe may use."""
    return [AUTO, *ENGINES]


def candidates(name: str) -> list[str]:
    """The engines that a name may mean: `auto` picks one by the device."""
    return [name] if name != AUTO else list(dict.fromkeys(map(_name_for, ("cpu", "cuda"))))


def make(name: str, context: EngineContext, workers: int) -> Engine:
    """Create the engine of that name, or the one that `auto` picks on the context's device."""
    entry = ENGINES[_name_for(context.device.type) if name == AUTO else name]
    instance: Engine = entry.load()(context, workers) if entry.workers else entry.load()(context)
    return instance


def _name_for(device: str) -> str:
    return next(name for name, entry in reversed(ENGINES.items()) if device in entry.auto)
