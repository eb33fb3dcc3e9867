"""A loss that is not finite ends the run: what its client sent says nothing, and later rounds would hide it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unskew.errors import UserError


class NotFiniteError(UserError):
    """A client's loss is no longer a number that training can go on from."""


def refuse_not_finite(round: int, terms: dict[int, dict[str, Tensor]]) -> None:
    """Stop at the first loss term that is nan or infinite; `terms` are means over a client's steps."""
    named = [(client, part, value) for client, parts in terms.items() for part, value in parts.items()]
    values = torch.stack([value for *_, value in named]).tolist() if named else []  # one look at the device for all
    for (client, part, _), value in zip(named, values):
        if not math.isfinite(value):
            raise NotFiniteError(f"round {round}, client {client}: the loss term {part} is {value}")
