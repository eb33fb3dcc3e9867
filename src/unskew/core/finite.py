"""A loss that is not finite ends the run: what its client sent says nothing, and later rounds would hide it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unskew.errors import UserError


class NotFiniteError(UserError):
    """A client's loss is no longer a number that training can go on from."""


def refuse_not_finite(round: int, terms: dict[int, dict[str, Tensor]]) -> None:
    """Stop at the first client with a loss term that is nan or infinite; `terms` are means over a client's steps.

    All such terms of the client are named: one of them spoils the weights, and a step later the others follow.
    """
    named = [(client, part, value) for client, parts in terms.items() for part, value in parts.items()]
    values = torch.stack([value for *_, value in named]).tolist() if named else []  # one look at the device for all
    bad = [(client, part, value) for (client, part, _), value in zip(named, values) if not math.isfinite(value)]
    if bad:
        first = bad[0][0]
        found = ", ".join(f"{part} {value}" for client, part, value in bad if client == first)
        raise NotFiniteError(f"round {round}, client {first}: expected finite loss terms, found {found}")
