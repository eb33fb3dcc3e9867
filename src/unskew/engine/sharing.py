"""Exchanges outside training, for one client or a stack of them: the same `share` hook under both engines."""

from __future__ import annotations

import torch
from torch import Tensor

from unskew.core.client import Client, Facts, Received
from unskew.core.part import Sizes
from unskew.core.state import State
from unskew.engine.base import Setting
from unskew.engine.feed import floats_as


def share_draws(setting: Setting, part: str, round: int, client: int) -> State:
    """A part's random tensors for an exchange of one client."""
    method, work = setting.planned(round)
    rows = len(setting.source.index[client])
    sizes = Sizes(rows, 0, work.batch, setting.task.classes, {})
    owner = next(p for p in method.parts if p.name == part)
    draws = setting.plan.part_draws(owner, "share", round, client, sizes)
    return {name: t.to(setting.device) for name, t in floats_as(draws, setting.dtype).items()}


def share_one(
    setting: Setting, part: str, round: int, received: Received, mine: State, draws: State, facts: Facts, index: Tensor
) -> tuple[dict, State]:
    """`share` on one client whose rows are at `index` [n], -1 for padding; under vmap, on each client of a stack."""
    method, _ = setting.in_force(round)
    source = setting.source

    def prepare(x: Tensor) -> Tensor:
        return source.prepare(x).to(setting.dtype)

    client = Client(setting.model, received.model, mine, draws, facts, source.x, source.y, index, prepare)
    owner = next(p for p in method.parts if p.name == part)
    with torch.no_grad():
        return owner.share(client)


def padded(tensors: list[Tensor]) -> Tensor:
    """Ragged [n_i, ...] to one stack [m, max n, ...]: integers are padded with -1 (picks nothing), floats with 0."""
    fill = 0 if tensors[0].is_floating_point() or tensors[0].dtype == torch.bool else -1
    if tensors[0].ndim == 0 or len({len(t) for t in tensors}) == 1:
        return torch.stack(tensors)
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=fill)
