"""Engines by name, with what each can do. An engine is imported when a run asks for it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from unskew.engines.engine import Engine, EngineContext

T = TypeVar("T")
AUTO = "auto"  # the name that stands for the engine of the device


class EngineEntry(NamedTuple):
    """What an engine is and can do; `load` returns its class, which takes a context, and workers if it has them."""

    description: str
    load: Callable[[], Any]
    workers: bool = False  # trains clients in several processes
    auto: tuple[str, ...] = ()  # device types on which `auto` picks it


def _class_at(module: str, name: str) -> Callable[[], Any]:
    return lambda: getattr(importlib.import_module(module), name)


ENGINES: dict[str, EngineEntry] = {
    "loop": EngineEntry(
        "client by client, in several processes",
        _class_at("unskew.engines.loop.loop_engine", "LoopEngine"),
        workers=True,
        auto=("cpu",),
    ),
    "stacked": EngineEntry(
        "all clients of a round in one tensor",
        _class_at("unskew.engines.stacked.stacked_engine", "StackedEngine"),
        auto=("cuda",),
    ),
    "plain": EngineEntry(
        "client by client with ordinary autograd and torch.optim, for debugging and as the reference",
        _class_at("unskew.engines.plain_engine", "PlainEngine"),
    ),
}


def engine(
    name: str, description: str, *, workers: bool = False, auto: tuple[str, ...] = ()
) -> Callable[[type[T]], type[T]]:
    """Register a class as the engine of that name; of several for one device, `auto` picks the last."""

    def register(cls: type[T]) -> type[T]:
        ENGINES[name] = EngineEntry(description, lambda: cls, workers, auto)
        return cls

    return register


def names() -> list[str]:
    """Every name that a recipe may give."""
    return [AUTO, *ENGINES]


def make(name: str, context: EngineContext, workers: int) -> Engine:
    """The engine of that name, or what `auto` picks on the context's device."""
    entry = ENGINES[_name_for(context.device.type) if name == AUTO else name]
    made: Engine = entry.load()(context, workers) if entry.workers else entry.load()(context)
    return made


def _name_for(device: str) -> str:
    return next(name for name, entry in reversed(ENGINES.items()) if device in entry.auto)
