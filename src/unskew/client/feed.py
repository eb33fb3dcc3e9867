"""Batch feeds: the plan's choices for a cohort as tensors, gathered step by step outside the differentiated code.

Every step has the same shape for all clients of a cohort. Clients with fewer steps repeat their last one; the engine
ignores these repetitions.
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
from unskew.wire.requests_and_replies import Received

Arrays = dict[str, np.ndarray]


class BatchFeed:
    """The inputs of all steps of a cohort of clients; `at(step, width)` returns those of the first `width` clients."""

    def __init__(
        self,
        context: ClientContext,
        client_rows: ClientRows,
        round: int,
        received: Received,
        clients: list[int],
        states: list[Tree],
        plans: Sequence[ClientPlan] = (),
    ) -> None:
        """`states` are the clients' states; `plans`, if given, are their plans made earlier (prefetched)."""
        self.context, self.client_rows, self.round, self.clients = context, client_rows, round, clients
        method, self.work = context.at_round(round)
        plans = plans or Planner(context, client_rows, round, received).plans(clients, states)
        self.steps = [plan.steps for plan in plans]
        self.real_rows = sum(plan.real_rows for plan in plans)
        longest, device = max(self.steps, default=0), context.device
        self._pools = _pools(plans)
        arrays = stack(p.arrays if p.steps == longest else _repeat_last_step(p.arrays, longest) for p in plans)
        arrays["weight"] = arrays["weight"].to(context.dtype)
        self._plan = tree_map(lambda t: to_device_async(t, device), arrays)
        self.facts: ClientFacts = client_rows.facts_of(clients)
        if any(type(part).label_stats is not Part.label_stats for part in method.parts):
            self.facts = vmap(lambda facts: with_label_stats(method, facts))(self.facts)

    @cached_property
    def work_done(self) -> tuple[WorkDone, Tensor]:
        """The steps that each client did [m] and the learning rate [], as `finish` takes them."""
        numbers = [[float(s), self.work.effective_steps(s), self.work.lr] for s in self.steps]
        table = to_device_async(torch.tensor(numbers, dtype=self.facts.counts.dtype), self.context.device)
        steps, effective, rates = table.unbind(1)
        return WorkDone(steps, effective), rates[0]

    @cached_property
    def shapes(self) -> Any:
        """Shapes and dtypes of one client's step inputs: the key under which an engine reuses a captured step."""
        return shapes(self.between(0, 1, 1), 2)

    def reuse_shapes(self, cache: dict[Any, Any]) -> None:
        """Take `shapes` from an earlier cohort on the same rows; without streams, the plan's shapes determine them."""
        plan_shapes = shapes(self._plan, 2)
        if plan_shapes not in cache:
            cache[plan_shapes] = self.shapes
        self.shapes = cache[plan_shapes]

    def between(self, first: int, last: int, width: int) -> StepInputs:
        """Inputs of steps first..last-1, each with leading axes [steps, width]."""
        plan = tree_map(lambda t: t[:width, first:last].transpose(0, 1), self._plan)
        index, weight = plan["index"], plan["weight"]
        x = self._gather(index.flatten(), tree_map(lambda t: t.flatten(0, 2), plan["augment"]))
        batch = {"x": x.view(*index.shape, *x.shape[1:]), "y": self.client_rows.y[index], "w": weight}
        batch |= {name: column[index] for name, column in self.client_rows.more.items()}
        streams: dict[str, dict[str, tuple[Tensor, Tensor]]] = {}
        for key, (xs, ys) in self._pools.items():
            rows, (part, _, name) = plan["streams"][key], key.partition("/")
            if key in plan["joined"]:
                joined = plan["joined"][key]
                batch["x"] = torch.where(_with_trailing_axes(joined, x.ndim + 2), xs[rows], batch["x"])
                batch["y"] = torch.where(joined, ys[rows], batch["y"])
            else:
                streams.setdefault(part, {})[name] = (xs[rows], ys[rows])
        step = torch.arange(first, last, device=index.device)[:, None].expand(last - first, width)
        return StepInputs(batch, plan["draws"], streams, (step, plan["epoch"], plan["seed"]))

    def at(self, step: int, width: int) -> StepInputs:
        """Inputs of one step, each with a leading axis of `width` clients."""
        return tree_map(lambda t: t[0], self.between(step, step + 1, width))

    def _gather(self, index: Tensor, draw: State) -> Tensor:
        client_rows = self.client_rows
        return client_rows.gather(
            client_rows.x, index, client_rows.augment, draw, client_rows.prepare, self.context.dtype
        )


CHUNK_BYTES = 32 * 2**20  # of rows gathered at once: this reduced a step of the demo's mlp from 0.87 to 0.47 ms


class SingleClientFeed:
    """The feed of one client, without a client axis, for `client_round`."""

    def __init__(self, feed: BatchFeed) -> None:
        self._feed, self.steps, self.work, self.real_rows = feed, feed.steps[0], feed.work, feed.real_rows
        row_bytes = feed.client_rows.x[0].numel() * feed.context.dtype.itemsize
        self._chunk_steps = max(min(CHUNK_BYTES // max(row_bytes * feed.work.batch, 1), self.steps), 1)
        self._first, self._chunk = 0, self._gather_chunk(0)
        self.facts: ClientFacts = tree_map(lambda t: t[0], feed.facts)

    def at(self, step: int) -> StepInputs:
        if not self._first <= step < self._first + self._chunk_steps:
            self._first, self._chunk = step, self._gather_chunk(step)
        offset = step - self._first
        return tree_map(lambda t: t[offset, 0], self._chunk)

    def _gather_chunk(self, step: int) -> StepInputs:
        inputs = self._feed.between(step, min(step + self._chunk_steps, self.steps), 1)
        x = inputs.batch["x"]
        # Only for single clients: under vmap, PyTorch's GroupNorm refuses inputs in channels_last layout.
        rows = self._feed.context.layout(x.flatten(0, 2))
        return inputs._replace(batch=inputs.batch | {"x": rows.view(x.shape)})


class ClientPlan(NamedTuple):
    """One client's random choices for a round, before stacking."""

    steps: int
    real_rows: int  # rows trained on, without the filler of partial batches
    streams: dict[str, Stream]
    arrays: dict[str, Any]  # a tree of NumPy arrays [steps, ...]


class Planner:
    """Makes the plans of a round's clients, one kind of choice after another for all of them.

    Client by client, fifty plans took 2.5 ms instead of 1.4: the code of all kinds together does not fit the
    processor's instruction cache.
    """

    def __init__(self, context: ClientContext, client_rows: ClientRows, round: int, received: Received) -> None:
        self._context, self._client_rows, self._round, self._received = context, client_rows, round, received
        self._method, self._work = context.at_round(round)
        self._drawing_parts = [part for part in self._method.parts if type(part).draws is not Part.draws]

    def plans(self, clients: Sequence[int], states: Sequence[Tree]) -> list[ClientPlan]:
        """The clients' plans, in the order of `clients`; `states` are their states."""
        plan, round, work = self._context.plan, self._round, self._work
        rows = [self._client_rows.index[k].numpy() for k in clients]
        streams = [_streams(self._method, self._received, state) for state in states]
        totals = [len(own_rows) + _joined_rows(own_streams) for own_rows, own_streams in zip(rows, streams)]
        orders = plan.orders(round, clients, totals, work)
        steps = [len(order) for order in orders]
        seeds = plan.step_seeds(round, clients, steps) if self._context.model.has_dropout else map(_no_seeds, steps)
        by_size = {
            n: (weights(n, work), _epoch_of_step(work.steps_for(n), work.steps_per_epoch(n))) for n in set(totals)
        }
        plans = []
        for k, own_rows, own_streams, total, order, seed in zip(clients, rows, streams, totals, orders, seeds):
            extra, (weight, epoch) = self._extra_arrays(k, len(own_rows), order, own_streams), by_size[total]
            index = own_rows[np.where(order < len(own_rows), order, 0) if extra["joined"] else order]
            arrays = {"index": index, "weight": weight, "epoch": epoch, "seed": seed, **extra}
            plans.append(ClientPlan(len(order), work.rows_for(total), own_streams, arrays))
        return plans

    def _extra_arrays(
        self, client: int, row_count: int, order: np.ndarray, streams: dict[str, Stream]
    ) -> dict[str, Any]:
        """Stream rows, the parts' draws and augmentation of a client with `row_count` rows of its own."""
        rows, joined = self._stream_rows(client, row_count, order, streams) if streams else ({}, {})
        draws = self._draws(client, row_count, order, streams) if self._drawing_parts else {}
        augment = self._augment(client, order) if self._client_rows.augment else {}
        return {"streams": rows, "joined": joined, "draws": draws, "augment": augment}

    def _stream_rows(
        self, client: int, row_count: int, order: np.ndarray, streams: dict[str, Stream]
    ) -> tuple[Arrays, Arrays]:
        """Row numbers [steps, batch] of each stream; for a stream that joins the epoch also a mask of its positions."""
        rows, joined, start = {}, {}, row_count
        for key, stream in streams.items():
            if stream.order == "join":
                joined[key] = (order >= start) & (order < start + len(stream.x))
                rows[key] = np.where(joined[key], order - start, 0)
                start += len(stream.x)
            else:
                rows[key] = self._context.plan.stream_order(self._round, client, key, stream, *order.shape).numpy()
        return rows, joined

    def _draws(self, client: int, row_count: int, order: np.ndarray, streams: dict[str, Stream]) -> dict[str, Arrays]:
        """The "steps" draws of the parts that have any, by part name."""
        plan, dtype, (steps, batch) = self._context.plan, self._context.dtype, order.shape
        sizes = Sizes(row_count, steps, batch, self._client_rows.classes, {key: len(s.x) for key, s in streams.items()})
        draws = {part.name: plan.part_draws(part, "steps", self._round, client, sizes) for part in self._drawing_parts}
        return {name: _to_numpy(cast_floats(state, dtype)) for name, state in draws.items() if state}

    def _augment(self, client: int, order: np.ndarray) -> Arrays:
        generator, (steps, batch) = self._context.plan.generator(self._round, client, "augment"), order.shape
        return _to_numpy(self._client_rows.augment.draw(generator, steps, batch, tuple(self._client_rows.x.shape[1:])))


@lru_cache(maxsize=256)  # clients of the same size share the array, in every round
def _epoch_of_step(steps: int, per_epoch: int) -> np.ndarray:
    """[steps] the epoch that each step belongs to."""
    return np.arange(steps) // max(per_epoch, 1)


@lru_cache(maxsize=256)
def _no_seeds(steps: int) -> np.ndarray:
    return np.zeros(steps, dtype=np.int64)


def _to_numpy(tensors: State) -> Arrays:
    return {name: t.numpy() for name, t in tensors.items()}


def _streams(method: Method, received: Received, client_state: Tree) -> dict[str, Stream]:
    """A client's streams that have rows, by "part/name"."""
    return {
        f"{part.name}/{name}": stream
        for part in method.parts
        if type(part).streams is not Part.streams
        for name, stream in part.streams(received.parts.get(part.name, {}), client_state.get(part.name, {})).items()
        if len(stream.x)
    }


def _joined_rows(streams: dict[str, Stream]) -> int:
    """Number of stream rows that join the client's epoch."""
    return sum(len(stream.x) for stream in streams.values() if stream.order == "join")


def stacking_key(method: Method, received: Received, client_state: Tree) -> tuple[Any, ...]:
    """A client's streams and the shapes of its state: only clients with equal keys can be stacked."""
    shapes = sorted((name, tuple(t.shape)) for name, t in flatten(client_state).items())
    return (*sorted(_streams(method, received, client_state)), *shapes)


def cast_floats(tree: State, dtype: torch.dtype) -> State:
    """The same tensors, with floats cast to the run's precision."""
    return {name: t.to(dtype) if t.is_floating_point() else t for name, t in tree.items()}


def _pools(plans: Sequence[ClientPlan]) -> dict[str, tuple[Tensor, Tensor]]:
    """One pool (x, y) of rows per stream: streams of the same tensors are stored once, others are concatenated."""
    pools: dict[str, tuple[Tensor, Tensor]] = {}
    for key in plans[0].streams if plans else ():
        unique: dict[int, Stream] = {}
        for plan in plans:
            unique.setdefault(id(plan.streams[key].x), plan.streams[key])
        starts, length = {}, 0
        for identity, stream in unique.items():
            starts[identity], length = length, length + len(stream.x)
        for plan in plans:
            plan.arrays["streams"][key] += starts[id(plan.streams[key].x)]
        pools[key] = (torch.cat([s.x for s in unique.values()]), torch.cat([s.y for s in unique.values()]))
    return pools


def _repeat_last_step(arrays: Any, steps: int) -> Any:
    """A tree's arrays [n, ...] extended to [steps, ...] by repeating the last step."""
    if isinstance(arrays, dict):
        return {name: _repeat_last_step(inner, steps) for name, inner in arrays.items()}
    return np.concatenate([arrays, np.repeat(arrays[-1:], steps - len(arrays), 0)])


def longest_first(client_rows: ClientRows, clients: list[int]) -> list[int]:
    """Clients by falling number of rows; clients with equally many stay in the order given."""
    return sorted(clients, key=lambda k: -client_rows.index[k].shape[0])


def _with_trailing_axes(mask: Tensor, ndim: int) -> Tensor:
    return mask.view(*mask.shape, *(1,) * (ndim - mask.ndim))


def shapes(tree: Any, drop: int) -> Any:
    """Names, shapes without the first `drop` axes, and dtypes of a tree's tensors, independent of their order."""
    if isinstance(tree, dict):
        return tuple((name, shapes(tree[name], drop)) for name in sorted(tree))
    return tuple(shapes(t, drop) for t in tree) if isinstance(tree, tuple) else (tuple(tree.shape[drop:]), tree.dtype)
