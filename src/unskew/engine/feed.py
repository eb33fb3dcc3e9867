"""Feeds: the plan's choices for a cohort as tensors, gathered step by step outside the differentiated code.

A cohort's rows all have the same shape at every step. Clients with fewer steps repeat their last one; whoever uses the
feed stops listening to a client when it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.core.client import Facts, Moment, Received, knowing
from unskew.core.method import Method
from unskew.core.part import Part, Sizes, Stream
from unskew.core.state import State, Tree, flatten, stack, tree_map
from unskew.core.work import Work
from unskew.engine.base import Setting, Source, laid_out, sent
from unskew.engine.mapping import vmap


class Cohort:
    """Everything the steps of some clients need; `at(step, width)` gives the first `width` clients' inputs."""

    def __init__(
        self,
        setting: Setting,
        source: Source,
        round: int,
        received: Received,
        clients: list[int],
        mine: list[Tree],
        ready: Mapping[int, ClientPlan] = MappingProxyType({}),
    ) -> None:
        """`ready` has plans that were made before."""
        self.setting, self.source, self.round, self.clients = setting, source, round, clients
        method, self.work = setting.planned(round)
        plans = [
            ready.get(k) or ClientPlan(setting, source, method, self.work, round, received, k, tree)
            for k, tree in zip(clients, mine)
        ]
        self.steps = [plan.steps for plan in plans]
        self.needed = sum(plan.needed for plan in plans)  # rows, without those that fill a partial batch
        longest, device = max(self.steps, default=0), setting.device
        self._pools = _pools(plans)
        gathered = stack(tree_map(lambda t: _lengthened(t, longest), plan.tensors) for plan in plans)
        self._plan = tree_map(lambda t: sent(t, device), gathered)
        self.facts: Facts = source.facts_of(clients)
        if any(type(part).known is not Part.known for part in method.parts):
            self.facts = vmap(lambda facts: knowing(method, facts))(self.facts)

    @cached_property
    def shapes(self) -> Any:
        """What a step of one client takes, by which a recorded step is known again."""
        return shapes(self.between(0, 1, 1), 2)

    def between(self, first: int, last: int, width: int) -> Moment:
        """Inputs of steps first..last, each with leading axes [steps, width]."""
        now = tree_map(lambda t: t[:width, first:last].transpose(0, 1), self._plan)
        index, weight = now["index"], now["weight"]
        x = self._rows(index.flatten(), tree_map(lambda t: t.flatten(0, 2), now["augment"]))
        batch = {"x": x.view(*index.shape, *x.shape[1:]), "y": self.source.y[index], "w": weight}
        batch |= {name: column[index] for name, column in self.source.more.items()}
        streams: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
        for key, (xs, ys) in self._pools.items():
            rows, (part, _, name) = now["streams"][key], key.partition("/")
            if key in now["joined"]:
                joined = now["joined"][key]
                batch["x"] = torch.where(_like(joined, x.ndim + 2), xs[rows], batch["x"])
                batch["y"] = torch.where(joined, ys[rows], batch["y"])
            else:
                streams.setdefault(part, {})[name] = (xs[rows], ys[rows])
        count = torch.arange(first, last, device=index.device)[:, None].expand(last - first, width)
        return Moment(batch, now["draws"], streams, (count, now["epoch"], now["seed"]))

    def at(self, step: int, width: int) -> Moment:
        """Inputs of one step, each with a leading axis of `width` clients."""
        return tree_map(lambda t: t[0], self.between(step, step + 1, width))

    def _rows(self, index: Tensor, draw: State) -> Tensor:
        raw, dtype = self.source.x[index], self.setting.dtype
        x = self.source.augment.apply(raw, draw, self.source.prepare) if draw else self.source.prepare(raw)
        return x.to(dtype)


AHEAD = 32 * 2**20  # bytes of rows that are gathered at once: a step of the demo's mlp fell from 0.87 to 0.47 ms


class OneClient:
    """A cohort of one without the leading axis: the feed of `client_round`."""

    def __init__(self, cohort: Cohort) -> None:
        self._cohort, self.steps, self.work, self.needed = cohort, cohort.steps[0], cohort.work, cohort.needed
        row = cohort.source.x[0].numel() * cohort.setting.dtype.itemsize
        self._ahead = max(min(AHEAD // max(row * cohort.work.batch, 1), self.steps), 1)
        self._first, self._ready = 0, self._gathered(0)
        self.facts: Facts = tree_map(lambda t: t[0], cohort.facts)

    def at(self, step: int) -> Moment:
        if not self._first <= step < self._first + self._ahead:
            self._first, self._ready = step, self._gathered(step)
        at = step - self._first
        return tree_map(lambda t: t[at, 0], self._ready)

    def _gathered(self, step: int) -> Moment:
        moment = self._cohort.between(step, min(step + self._ahead, self.steps), 1)
        x = moment.batch["x"]
        # Here and not for stacks: mapped over clients, PyTorch's GroupNorm refuses rows whose channels are innermost.
        rows = laid_out(x.flatten(0, 2), self._cohort.setting.model)
        return moment._replace(batch=moment.batch | {"x": rows.view(x.shape)})


class ClientPlan:
    """One client's choices for a round, before stacking."""

    def __init__(
        self,
        setting: Setting,
        source: Source,
        method: Method,
        work: Work,
        round: int,
        received: Received,
        client: int,
        mine: Tree,
    ) -> None:
        plan, rows = setting.plan, len(source.index[client])
        self.streams = _streams(method, received, mine)
        total = rows + sum(len(stream.x) for stream in self.streams.values() if stream.order == "join")
        order = plan.order(round, client, total, work)
        self.steps, self.needed = (steps := len(order.index)), work.rows_for(total)
        self.rows, joined = self._stream_rows(order.index, rows, partial(plan.stream_order, round, client), work.batch)
        sizes = Sizes(rows, steps, work.batch, source.classes, {key: len(s.x) for key, s in self.streams.items()})
        own = torch.where(order.index < rows, order.index, 0) if joined else order.index
        self.tensors = {
            "index": source.index[client][own],
            "weight": order.weight.to(setting.dtype),
            "epoch": _epochs(steps, max(work.steps_per_epoch(total), 1)),
            "seed": plan.step_seeds(round, client, steps) if setting.model.masked else torch.zeros(steps).long(),
            "streams": self.rows,
            "joined": joined,
            "draws": _draws(setting, method, round, client, sizes),
            "augment": self._augment(partial(plan.generator, round, client, "augment"), source, steps, work.batch),
        }

    def _stream_rows(
        self, index: Tensor, own: int, drawn: Callable[[str, Stream, int, int], Tensor], batch: int
    ) -> tuple[State, State]:
        """Rows [steps, batch] of each stream; of one that joins the epoch also where it replaces own rows."""
        rows, joined, at = {}, {}, own
        for key, stream in self.streams.items():
            if stream.order == "join":
                joined[key] = (index >= at) & (index < at + len(stream.x))
                rows[key] = torch.where(joined[key], index - at, 0)
                at += len(stream.x)
            else:
                rows[key] = drawn(key, stream, len(index), batch)
        return rows, joined

    @staticmethod
    def _augment(generator: Callable[[], np.random.Generator], source: Source, steps: int, batch: int) -> State:
        return source.augment.draw(generator(), steps, batch, tuple(source.x.shape[1:])) if source.augment else {}


@lru_cache(maxsize=256)  # clients of a size share them, in every round
def _epochs(steps: int, per_epoch: int) -> Tensor:
    """[steps] numbers of the epochs."""
    return torch.arange(steps) // per_epoch


def _streams(method: Method, received: Received, mine: Tree) -> dict[str, Stream]:
    """Streams that are not empty, by part/name."""
    return {
        f"{part.name}/{name}": stream
        for part in method.parts
        for name, stream in part.streams(received.parts.get(part.name, {}), mine.get(part.name, {})).items()
        if len(stream.x)
    }


def signature(method: Method, received: Received, mine: Tree) -> tuple[Any, ...]:
    """Which streams a client has and the shapes of its state: only clients that agree can be stacked."""
    shapes = sorted((name, tuple(t.shape)) for name, t in flatten(mine).items())
    return (*sorted(_streams(method, received, mine)), *shapes)


def _draws(setting: Setting, method: Method, round: int, client: int, sizes: Sizes) -> dict[str, State]:
    draws = {p.name: setting.plan.part_draws(p, "steps", round, client, sizes) for p in method.parts}
    return {name: floats_as(state, setting.dtype) for name, state in draws.items() if state}


def floats_as(tree: State, dtype: torch.dtype) -> State:
    """The same tensors with floats in the run's precision."""
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tree.items()}


def _pools(plans: list[ClientPlan]) -> dict[str, tuple[Tensor, Tensor]]:
    """One pool of rows per stream; clients that share the same rows share them here, the others are put end to end."""
    pools: dict[str, tuple[Tensor, Tensor]] = {}
    for key in plans[0].streams if plans else ():
        found: dict[int, Stream] = {}
        for plan in plans:
            found.setdefault(id(plan.streams[key].x), plan.streams[key])
        starts, at = {}, 0
        for identity, stream in found.items():
            starts[identity], at = at, at + len(stream.x)
        for plan in plans:
            plan.rows[key] += starts[id(plan.streams[key].x)]
        pools[key] = (torch.cat([s.x for s in found.values()]), torch.cat([s.y for s in found.values()]))
    return pools


def _lengthened(t: Tensor, steps: int) -> Tensor:
    """[n, ...] to [steps, ...] by repeating the last step."""
    return t if len(t) == steps else torch.cat([t, t[-1:].expand(steps - len(t), *t.shape[1:])])


def longest_first(source: Source, clients: list[int]) -> list[int]:
    """Clients by their number of rows; equal ones stay in the order given."""
    return sorted(clients, key=lambda k: -len(source.index[k]))


def _like(mask: Tensor, ndim: int) -> Tensor:
    return mask.view(*mask.shape, *(1,) * (ndim - mask.ndim))


def shapes(tree: Any, drop: int) -> Any:
    """Names, shapes without the first `drop` axes, and types of a tree's tensors, whatever their order."""
    if isinstance(tree, dict):
        return tuple((name, shapes(tree[name], drop)) for name in sorted(tree))
    return tuple(shapes(t, drop) for t in tree) if isinstance(tree, tuple) else (tuple(tree.shape[drop:]), tree.dtype)
