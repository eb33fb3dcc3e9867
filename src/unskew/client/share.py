"""Exchanges outside training, for one client or a stack of them: the same `share` hook under both engines."""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from unskew.base.tree import State, stack
from unskew.base.vmap import vmap
from unskew.client.feed import floats_as
from unskew.client.round import Client, Facts
from unskew.engines.engine import Setting, sent
from unskew.protocol.part import Sizes


def share_draws(setting: Setting, part: str, round: int, client: int) -> State:
    """A part's random tensors for an exchange of one client: the client's own of "init", and those of this time."""
    method, work = setting.planned(round)
    rows = len(setting.source.index[client])
    sizes = Sizes(rows, 0, work.batch, setting.task.classes, {})
    owner = next(p for p in method.parts if p.name == part)
    whens: tuple[Literal["init", "share"], ...] = ("init", "share")
    draws = {n: t for when in whens for n, t in setting.plan.part_draws(owner, when, round, client, sizes).items()}
    return {name: sent(t, setting.device) for name, t in floats_as(draws, setting.dtype).items()}


def share_one(
    setting: Setting, part: str, round: int, state: State, mine: State, draws: State, facts: Facts, index: Tensor
) -> tuple[dict, State]:
    """`share` on one client with a model `state`, its rows at `index` [n] with -1 for padding; or mapped over many."""
    method, _ = setting.in_force(round)
    source = setting.source
    client = Client(setting.model, state, mine, draws, facts, source.x, source.y, index, source.prepare)
    owner = next(p for p in method.parts if p.name == part)
    with torch.no_grad():
        return owner.share(client)


def share_many(
    setting: Setting, part: str, round: int, state: State, mine: list[State], clients: list[int], each_its_model: bool
) -> tuple[dict, State]:
    """`share` on a stack of clients, whose draws and rows are padded to the longest."""
    draws = [share_draws(setting, part, round, k) for k in clients]
    drawn = {name: padded([d[name] for d in draws]) for name in draws[0]}
    facts = setting.source.facts_of(clients)
    index = sent(padded([setting.source.index[k] for k in clients]), setting.device)
    each = vmap(partial(share_one, setting, part, round), in_dims=(0 if each_its_model else None, 0, 0, 0, 0))
    return each(state, stack(mine), drawn, facts, index)


def padded(tensors: list[Tensor]) -> Tensor:
    """Ragged [n_i, ...] to one stack [m, max n, ...]: integers are padded with -1 (picks nothing), floats with 0."""
    fill = 0 if tensors[0].is_floating_point() or tensors[0].dtype == torch.bool else -1
    if tensors[0].ndim == 0 or len({len(t) for t in tensors}) == 1:
        return torch.stack(tensors)
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)
