"""A loss that is not finite ends the run: what its client sent says nothing, and later rounds would hide it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from unskew.errors import UserError


class NotFiniteError(UserError):
    """A client's loss is no longer a number that training can go on from."""


def finite_terms(round: int, terms: dict[int, dict[str, Tensor]]) -> dict[int, dict[str, float]]:
    """Loss terms by client and part as numbers; refuses the first client with one that is nan or infinite.

    All such terms of the client are named: one of them spoils the weights, and a step later the others follow.
    """
    named = [value for parts in terms.values() for value in parts.values()]
    numbers = iter(torch.stack(named).tolist() if named else [])  # one look at the device for all
    found = {client: {part: next(numbers) for part in parts} for client, parts in terms.items()}
    for client, parts in found.items():
        if bad := ", ".join(f"{part} {value}" for part, value in parts.items() if not math.isfinite(value)):
            raise NotFiniteError(f"round {round}, client {client}: expected finite loss terms, found {bad}")
    return found
