"""Exchanges outside training, for one client or a stack of them: the same `share` hook in every engine."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from unskew.base.tree import State, stack
from unskew.base.vmap import vmap
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import to_device_async
from unskew.client.feed import floats_as
from unskew.protocol.client_view import Client, ClientFacts
from unskew.protocol.part import Sizes


def share_draws(context: ClientContext, part: str, round: int, client: int) -> State:
    """A part's random tensors for an exchange of one client: the client's own of "init", and those of this time."""
    method, work = context.at_round(round)
    rows = len(context.client_rows.index[client])
    sizes = Sizes(rows, 0, work.batch, context.task.classes, {})
    owner = next(p for p in method.parts if p.name == part)
    whens: tuple[Literal["init", "share"], ...] = ("init", "share")
    draws = {n: t for when in whens for n, t in context.plan.part_draws(owner, when, round, client, sizes).items()}
    return {name: to_device_async(t, context.device) for name, t in floats_as(draws, context.dtype).items()}


def share_one(
    context: ClientContext,
    part: str,
    round: int,
    state: State,
    mine: State,
    draws: State,
    facts: ClientFacts,
    index: Tensor,
) -> tuple[dict, State]:
    """`share` on one client with a model `state`, its rows at `index` [n] with -1 for padding; or mapped over many."""
    method, _ = context.at_round_on_device(round)
    client_rows = context.client_rows
    client = Client(context.model, state, mine, draws, facts, client_rows.x, client_rows.y, index, client_rows.prepare)
    owner = next(p for p in method.parts if p.name == part)
    with torch.no_grad():
        return owner.share(client)


def share_many(
    context: ClientContext,
    part: str,
    round: int,
    state: State,
    mine: list[State],
    clients: list[int],
    each_its_model: bool,
) -> tuple[dict, State]:
    """`share` on a stack of clients, whose draws and rows are padded to the longest."""
    draws = [share_draws(context, part, round, k) for k in clients]
    drawn = {name: padded([d[name] for d in draws]) for name in draws[0]}
    facts = context.client_rows.facts_of(clients)
    index = to_device_async(padded([context.client_rows.index[k] for k in clients]), context.device)
    each = vmap(partial(share_one, context, part, round), in_dims=(0 if each_its_model else None, 0, 0, 0, 0))
    return each(state, stack(mine), drawn, facts, index)


def padded(tensors: list[Tensor]) -> Tensor:
    """Ragged [n_i, ...] to one stack [m, max n, ...]: integers are padded with -1 (picks nothing), floats with 0."""
    fill = 0 if tensors[0].is_floating_point() or tensors[0].dtype == torch.bool else -1
    if tensors[0].ndim == 0 or len({len(t) for t in tensors}) == 1:
        return torch.stack(tensors)
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)
