"""A loss that is not finite ends the run: the client's update is meaningless, and later rounds would hide it."""

from __future__ import annotations

import math
from itertools import islice

import torch

from unskew.base.errors import UserError
from unskew.wire.requests_and_replies import LossTerms


class NotFiniteError(UserError):
    """A client's loss is nan or infinite, so training cannot continue from its update."""


def terms_by_client(terms: list[LossTerms]) -> dict[int, dict[str, float]]:
    """Loss terms by client and part as numbers."""
    columns = [column for some in terms for column in some.values.values()]
    numbers = iter(torch.cat(columns).tolist() if columns else [])  # one copy from the device for all
    by_client: dict[int, dict[str, float]] = {}
    for some in terms:
        rows = {part: list(islice(numbers, len(some.rows_at))) for part in some.values}
        for k, i in zip(some.clients, some.rows_at):
            by_client[k] = {part: row[i] for part, row in rows.items()}
    return by_client


def check_loss_terms(round: int, by_client: dict[int, dict[str, float]]) -> None:
    """Raise for the first client with a term that is nan or infinite.

    All such terms of the client are named: one of them spoils the weights, and a step later the others are not finite
    either.
    """
    for client, parts in by_client.items():
        if not all(map(math.isfinite, parts.values())):
            bad = ", ".join(f"{part} {value}" for part, value in parts.items() if not math.isfinite(value))
            raise NotFiniteError(f"round {round}, client {client}: expected finite loss terms, found {bad}")
