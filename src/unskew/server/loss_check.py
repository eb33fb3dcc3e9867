"""A loss that is not finite ends the run: what its client sent says nothing, and later rounds would hide it."""

from __future__ import annotations

import math
from itertools import islice

import torch

from unskew.base.errors import UserError
from unskew.wire.message import LossTerms


class NotFiniteError(UserError):
    """A client's loss is no longer a number that training can go on from."""


def loss_terms(terms: list[LossTerms]) -> dict[int, dict[str, float]]:
    """Loss terms by client and part as numbers."""
    columns = [column for some in terms for column in some.values.values()]
    numbers = iter(torch.cat(columns).tolist() if columns else [])  # one look at the device for all
    found: dict[int, dict[str, float]] = {}
    for some in terms:
        rows = {part: list(islice(numbers, len(some.at))) for part in some.values}
        for k, i in zip(some.clients, some.at):
            found[k] = {part: row[i] for part, row in rows.items()}
    return found


def check_loss_terms(round: int, found: dict[int, dict[str, float]]) -> None:
    """Refuses the first client with a term that is nan or infinite.

    All such terms of the client are named: one of them spoils the weights, and a step later the others follow.
    """
    for client, parts in found.items():
        if not all(map(math.isfinite, parts.values())):
            bad = ", ".join(f"{part} {value}" for part, value in parts.items() if not math.isfinite(value))
            raise NotFiniteError(f"round {round}, client {client}: expected finite loss terms, found {bad}")
