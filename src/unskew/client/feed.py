"""Feeds: the plan's choices for a cohort as tensors, gathered step by step outside the differentiated code.

A cohort's rows all have the same shape at every step. Clients with fewer steps repeat their last one; whoever uses the
feed stops listening to a client when it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from unskew.base.tree import State, Tree, flatten, stack, tree_map
from unskew.base.vmap import vmap
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import ClientRows, to_device_async
from unskew.client.plan import weights
from unskew.client.round import StepInputs, WorkDone, with_label_stats
from unskew.protocol.client_view import ClientFacts
from unskew.protocol.method import Method
from unskew.protocol.part import Part, Sizes, Stream
from unskew.wire.message import Received

Arrays = dict[str, np.ndarray]


class BatchFeed:
    """Everything the steps of some clients need; `at(step, width)` gives the first `width` clients' inputs."""

    def __init__(
        self,
        context: ClientContext,
        client_rows: ClientRows,
        round: int,
        received: Received,
        clients: list[int],
        mine: list[Tree],
        ready: Sequence[ClientPlan] = (),
    ) -> None:
        """`ready` has the clients' plans if they were made before."""
        self.context, self.client_rows, self.round, self.clients = context, client_rows, round, clients
        method, self.work = context.at_round(round)
        plans = ready or Planner(context, client_rows, round, received).plans(clients, mine)
        self.steps = [plan.steps for plan in plans]
        self.needed = sum(plan.needed for plan in plans)  # rows, without those that fill a partial batch
        longest, device = max(self.steps, default=0), context.device
        self._pools = _pools(plans)
        gathered = stack(p.arrays if p.steps == longest else _lengthened(p.arrays, longest) for p in plans)
        gathered["weight"] = gathered["weight"].to(context.dtype)
        self._plan = tree_map(lambda t: to_device_async(t, device), gathered)
        self.facts: ClientFacts = client_rows.facts_of(clients)
        if any(type(part).label_stats is not Part.label_stats for part in method.parts):
            self.facts = vmap(lambda facts: with_label_stats(method, facts))(self.facts)

    @cached_property
    def ending(self) -> tuple[WorkDone, Tensor]:
        """What the clients' `finish` needs about the work [m], and the learning rate []."""
        numbers = [[float(s), self.work.effective_steps(s), self.work.lr] for s in self.steps]
        there = to_device_async(torch.tensor(numbers, dtype=self.facts.counts.dtype), self.context.device)
        steps, effective, rates = there.unbind(1)
        return WorkDone(steps, effective), rates[0]

    @cached_property
    def shapes(self) -> Any:
        """What a step of one client takes, by which a recorded step is known again."""
        return shapes(self.between(0, 1, 1), 2)

    def recall(self, seen: dict[Any, Any]) -> None:
        """Take `shapes` from an earlier cohort of the same rows, without streams: the plan's shapes decide them."""
        form = shapes(self._plan, 2)
        if form not in seen:
            seen[form] = self.shapes
        self.shapes = seen[form]

    def between(self, first: int, last: int, width: int) -> StepInputs:
        """Inputs of steps first..last, each with leading axes [steps, width]."""
        now = tree_map(lambda t: t[:width, first:last].transpose(0, 1), self._plan)
        index, weight = now["index"], now["weight"]
        x = self._rows(index.flatten(), tree_map(lambda t: t.flatten(0, 2), now["augment"]))
        batch = {"x": x.view(*index.shape, *x.shape[1:]), "y": self.client_rows.y[index], "w": weight}
        batch |= {name: column[index] for name, column in self.client_rows.more.items()}
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
        return StepInputs(batch, now["draws"], streams, (count, now["epoch"], now["seed"]))

    def at(self, step: int, width: int) -> StepInputs:
        """Inputs of one step, each with a leading axis of `width` clients."""
        return tree_map(lambda t: t[0], self.between(step, step + 1, width))

    def _rows(self, index: Tensor, draw: State) -> Tensor:
        client_rows = self.client_rows
        return client_rows.gather(
            client_rows.x, index, client_rows.augment, draw, client_rows.prepare, self.context.dtype
        )


AHEAD = 32 * 2**20  # bytes of rows that are gathered at once: a step of the demo's mlp fell from 0.87 to 0.47 ms


class SingleClientFeed:
    """A cohort of one without the leading axis: the feed of `client_round`."""

    def __init__(self, cohort: BatchFeed) -> None:
        self._cohort, self.steps, self.work, self.needed = cohort, cohort.steps[0], cohort.work, cohort.needed
        row = cohort.client_rows.x[0].numel() * cohort.context.dtype.itemsize
        self._ahead = max(min(AHEAD // max(row * cohort.work.batch, 1), self.steps), 1)
        self._first, self._ready = 0, self._gathered(0)
        self.facts: ClientFacts = tree_map(lambda t: t[0], cohort.facts)

    def at(self, step: int) -> StepInputs:
        if not self._first <= step < self._first + self._ahead:
            self._first, self._ready = step, self._gathered(step)
        at = step - self._first
        return tree_map(lambda t: t[at, 0], self._ready)

    def _gathered(self, step: int) -> StepInputs:
        moment = self._cohort.between(step, min(step + self._ahead, self.steps), 1)
        x = moment.batch["x"]
        # Here and not for stacks: mapped over clients, PyTorch's GroupNorm refuses rows whose channels are innermost.
        rows = self._cohort.context.layout(x.flatten(0, 2))
        return moment._replace(batch=moment.batch | {"x": rows.view(x.shape)})


class ClientPlan(NamedTuple):
    """One client's choices for a round, before stacking."""

    steps: int
    needed: int  # rows, without those that fill a partial batch
    streams: dict[str, Stream]
    arrays: dict[str, Any]  # a tree of NumPy's [steps, ...]


class Planner:
    """Makes the plans of a round's clients, one kind of choice after another for all of them.

    Client by client, fifty plans took 2.5 ms instead of 1.4: all kinds together are more code than a processor keeps at
    hand.
    """

    def __init__(self, context: ClientContext, client_rows: ClientRows, round: int, received: Received) -> None:
        self._context, self._source, self._round, self._received = context, client_rows, round, received
        self._method, self._work = context.at_round(round)
        self._drawing = [part for part in self._method.parts if type(part).draws is not Part.draws]

    def plans(self, clients: Sequence[int], mine: Sequence[Tree]) -> list[ClientPlan]:
        """Their plans, in the order given."""
        plan, round, work = self._context.plan, self._round, self._work
        rows = [self._source.index[k].numpy() for k in clients]
        streams = [_streams(self._method, self._received, tree) for tree in mine]
        totals = [len(own) + _joining(each) for own, each in zip(rows, streams)]
        orders = plan.orders(round, clients, totals, work)
        steps = [len(order) for order in orders]
        seeds = plan.step_seeds(round, clients, steps) if self._context.model.masked else map(_no_seeds, steps)
        by_size = {n: (weights(n, work), _epochs(work.steps_for(n), work.steps_per_epoch(n))) for n in set(totals)}
        plans = []
        for k, own, each, total, order, seed in zip(clients, rows, streams, totals, orders, seeds):
            more, (weight, epoch) = self._more(k, len(own), order, each), by_size[total]
            index = own[np.where(order < len(own), order, 0) if more["joined"] else order]
            arrays = {"index": index, "weight": weight, "epoch": epoch, "seed": seed, **more}
            plans.append(ClientPlan(len(order), work.rows_for(total), each, arrays))
        return plans

    def _more(self, client: int, own: int, order: np.ndarray, streams: dict[str, Stream]) -> dict[str, Any]:
        """What a client with so many rows of its own has beside them: streams, draws of the parts, augmentation."""
        rows, joined = self._stream_rows(client, own, order, streams) if streams else ({}, {})
        draws = self._draws(client, own, order, streams) if self._drawing else {}
        augment = self._augment(client, order) if self._source.augment else {}
        return {"streams": rows, "joined": joined, "draws": draws, "augment": augment}

    def _stream_rows(
        self, client: int, own: int, order: np.ndarray, streams: dict[str, Stream]
    ) -> tuple[Arrays, Arrays]:
        """Rows [steps, batch] of each stream; of one that joins the epoch also where it replaces own rows."""
        rows, joined, at = {}, {}, own
        for key, stream in streams.items():
            if stream.order == "join":
                joined[key] = (order >= at) & (order < at + len(stream.x))
                rows[key] = np.where(joined[key], order - at, 0)
                at += len(stream.x)
            else:
                rows[key] = self._context.plan.stream_order(self._round, client, key, stream, *order.shape).numpy()
        return rows, joined

    def _draws(self, client: int, own: int, order: np.ndarray, streams: dict[str, Stream]) -> dict[str, Arrays]:
        """Of the parts that draw something, by name."""
        plan, dtype, (steps, batch) = self._context.plan, self._context.dtype, order.shape
        sizes = Sizes(own, steps, batch, self._source.classes, {key: len(s.x) for key, s in streams.items()})
        draws = {part.name: plan.part_draws(part, "steps", self._round, client, sizes) for part in self._drawing}
        return {name: _arrays(floats_as(state, dtype)) for name, state in draws.items() if state}

    def _augment(self, client: int, order: np.ndarray) -> Arrays:
        generator, (steps, batch) = self._context.plan.generator(self._round, client, "augment"), order.shape
        return _arrays(self._source.augment.draw(generator, steps, batch, tuple(self._source.x.shape[1:])))


@lru_cache(maxsize=256)  # clients of a size share them, in every round
def _epochs(steps: int, per_epoch: int) -> np.ndarray:
    """[steps] numbers of the epochs."""
    return np.arange(steps) // max(per_epoch, 1)


@lru_cache(maxsize=256)
def _no_seeds(steps: int) -> np.ndarray:
    return np.zeros(steps, dtype=np.int64)


def _arrays(tensors: State) -> Arrays:
    return {name: t.numpy() for name, t in tensors.items()}


def _streams(method: Method, received: Received, mine: Tree) -> dict[str, Stream]:
    """Streams that are not empty, by part/name."""
    return {
        f"{part.name}/{name}": stream
        for part in method.parts
        if type(part).streams is not Part.streams
        for name, stream in part.streams(received.parts.get(part.name, {}), mine.get(part.name, {})).items()
        if len(stream.x)
    }


def _joining(streams: dict[str, Stream]) -> int:
    """Rows that become part of the epoch."""
    return sum(len(stream.x) for stream in streams.values() if stream.order == "join")


def signature(method: Method, received: Received, mine: Tree) -> tuple[Any, ...]:
    """Which streams a client has and the shapes of its state: only clients that agree can be stacked."""
    shapes = sorted((name, tuple(t.shape)) for name, t in flatten(mine).items())
    return (*sorted(_streams(method, received, mine)), *shapes)


def floats_as(tree: State, dtype: torch.dtype) -> State:
    """The same tensors with floats in the run's precision."""
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tree.items()}


def _pools(plans: Sequence[ClientPlan]) -> dict[str, tuple[Tensor, Tensor]]:
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
            plan.arrays["streams"][key] += starts[id(plan.streams[key].x)]
        pools[key] = (torch.cat([s.x for s in found.values()]), torch.cat([s.y for s in found.values()]))
    return pools


def _lengthened(arrays: Any, steps: int) -> Any:
    """A tree's arrays [n, ...] to [steps, ...] by repeating the last step."""
    if isinstance(arrays, dict):
        return {name: _lengthened(inner, steps) for name, inner in arrays.items()}
    return np.concatenate([arrays, np.repeat(arrays[-1:], steps - len(arrays), 0)])


def longest_first(client_rows: ClientRows, clients: list[int]) -> list[int]:
    """Clients by their number of rows; equal ones stay in the order given."""
    return sorted(clients, key=lambda k: -client_rows.index[k].shape[0])


def _like(mask: Tensor, ndim: int) -> Tensor:
    return mask.view(*mask.shape, *(1,) * (ndim - mask.ndim))


def shapes(tree: Any, drop: int) -> Any:
    """Names, shapes without the first `drop` axes, and types of a tree's tensors, whatever their order."""
    if isinstance(tree, dict):
        return tuple((name, shapes(tree[name], drop)) for name in sorted(tree))
    return tuple(shapes(t, drop) for t in tree) if isinstance(tree, tuple) else (tuple(tree.shape[drop:]), tree.dtype)
