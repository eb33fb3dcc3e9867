"""Ledger entries of a round: the model and broadcasts that clients are sent, and the artefacts in their replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from unskew.base.tree import Message, State
from unskew.models.model import Model
from unskew.protocol.method import Method
from unskew.protocol.part import Artefact
from unskew.server.reply_policy import Declared
from unskew.server.snapshot import Snapshot
from unskew.wire.ledger import row_count_tensor
from unskew.wire.requests_and_replies import Received

MODEL = Artefact("weights", reduce="mean")
SAMPLES = Artefact("counts", reduce="sum")


def log_broadcasts(snap: Snapshot, clients: Iterable[int], method: Method, model: Model, received: Received) -> None:
    """Enter the model and the parts' broadcasts as sent to these clients for training."""
    log_model(snap, "train", clients, model, received.model)
    for part in method.parts:
        sent = received.parts.get(part.name, {})
        for name, artefact in part.broadcasts.items():
            if name in sent:
                snap.ledger.log_down(snap.round, "train", clients, part.name, name, artefact, sent[name])


def log_model(snap: Snapshot, phase: str, clients: Iterable[int], model: Model, state: State) -> None:
    """Enter the model as sent to these clients, without the tensors that never leave them."""
    public = {name: t for name, t in state.items() if name not in model.private}
    snap.ledger.log_down(snap.round, phase, clients, "model", "weights", MODEL, public)


def log_reply(snap: Snapshot, phase: str, client: int, rows: int, message: Message, declared: Declared) -> None:
    """Enter the artefacts of a client's message, and after training its number of rows."""
    entry, ledger = (snap.round, phase, client), snap.ledger
    if phase == "train":
        ledger.log_up(*entry, "model", "samples", SAMPLES, row_count_tensor(rows))
    for part, sent in message.items():
        for name, value in sent.items():
            ledger.log_up(*entry, part, name, declared[part][name], value)


def log_shared(
    snap: Snapshot, client: int, shared: dict[str, Message], shares: Mapping[str, tuple[Declared, Any, Any]]
) -> None:
    """Enter the artefacts of exchanges after training, whose declarations are in `shares`."""
    for part, message in shared.items():
        for name, value in message[part].items():
            entry = (snap.round, "after training", client)
            snap.ledger.log_up(*entry, part, name, shares[part][0][part][name], value)
