"""Exchanges: a part's `share` hook for one client or a stack of clients, the same in every engine."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from unskew.base.tree import State, stack
from unskew.base.vmap import vmap
from unskew.client.client_context import ClientContext
from unskew.client.client_rows import to_device_async
from unskew.client.feed import cast_floats
from unskew.protocol.client_view import Client, ClientFacts
from unskew.protocol.part import Sizes


def share_draws(context: ClientContext, part: str, round: int, client: int) -> State:
    """A part's draws for one client's exchange: the client's permanent "init" draws, and the "share" draws."""
    method, work = context.at_round(round)
    rows = len(context.client_rows.index[client])
    sizes = Sizes(rows, 0, work.batch, context.task.classes, {})
    sharing_part = next(p for p in method.parts if p.name == part)
    occasions: tuple[Literal["init", "share"], ...] = ("init", "share")
    draws = {
        n: t for when in occasions for n, t in context.plan.part_draws(sharing_part, when, round, client, sizes).items()
    }
    return {name: to_device_async(t, context.device) for name, t in cast_floats(draws, context.dtype).items()}


def share_one(
    context: ClientContext,
    part: str,
    round: int,
    state: State,
    part_state: State,
    draws: State,
    facts: ClientFacts,
    index: Tensor,
) -> tuple[dict, State]:
    """`share` on one client with the model `state` and rows `index` [n], padded with -1; vmap maps it over many."""
    method, _ = context.at_round_on_device(round)
    client_rows = context.client_rows
    client = Client(
        context.model, state, part_state, draws, facts, client_rows.x, client_rows.y, index, client_rows.prepare
    )
    sharing_part = next(p for p in method.parts if p.name == part)
    with torch.no_grad():
        return sharing_part.share(client)


def share_many(
    context: ClientContext,
    part: str,
    round: int,
    state: State,
    part_states: list[State],
    clients: list[int],
) -> tuple[dict, State]:
    """`share_one` on a stack of clients, whose draws and rows are padded to the longest.

    state: the clients' models, with a leading client axis.
    """
    draws = [share_draws(context, part, round, k) for k in clients]
    drawn = {name: pad_and_stack([d[name] for d in draws]) for name in draws[0]}
    facts = context.client_rows.facts_of(clients)
    index = to_device_async(pad_and_stack([context.client_rows.index[k] for k in clients]), context.device)
    each = vmap(partial(share_one, context, part, round))
    return each(state, stack(part_states), drawn, facts, index)


def pad_and_stack(tensors: list[Tensor]) -> Tensor:
    """Ragged [n_i, ...] as one stack [m, max n, ...]: integers are padded with -1 (no row), floats and bools with 0."""
    fill = 0 if tensors[0].is_floating_point() or tensors[0].dtype == torch.bool else -1
    if tensors[0].ndim == 0 or len({len(t) for t in tensors}) == 1:
        return torch.stack(tensors)
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)
